import pytest

from sd_scripts.data.meters import SECONDS_TO_JUDGE, Circumstances, Loading, LoadMeter, advice

PLAIN = Circumstances(workers=2, most_workers=6, is_cached=False)


def loading(wait: float, cpu: float = 0.9) -> Loading:
    return Loading(data_wait=wait, images_per_second=10, worker_cpu=cpu, mb_per_second=12)


@pytest.mark.parametrize(
    ("told", "circumstances", "sentence"),
    [
        (loading(0.1), PLAIN, ""),
        (
            loading(0.34),
            PLAIN,
            "waiting for data 34 % of the time: raise max_data_loader_n_workers to 4, or set cache_latents = true",
        ),
        (
            loading(0.9),
            PLAIN,
            "waiting for data 90 % of the time: raise max_data_loader_n_workers to 6, or set cache_latents = true",
        ),
        (
            loading(0.5),
            Circumstances(workers=6, most_workers=6, is_cached=False),
            "waiting for data 50 % of the time: set cache_latents = true",
        ),
        (
            loading(0.5),
            Circumstances(workers=6, most_workers=6, is_cached=False, varies=("random_crop", "color_aug")),
            "waiting for data 50 % of the time: set cache_latents = true and leave random_crop and color_aug off",
        ),
        (
            loading(0.5, cpu=0.2),
            Circumstances(workers=6, most_workers=6, is_cached=False),
            "waiting for data 50 % of the time: set cache_latents = true, or keep the pictures on a faster disk "
            "(this one gives 12 MB/s)",
        ),
        (
            loading(0.2),
            Circumstances(workers=0, most_workers=1, is_cached=False),
            "waiting for data 20 % of the time: raise max_data_loader_n_workers to 1, or set cache_latents = true",
        ),
        (
            loading(0.4),
            Circumstances(workers=0, most_workers=6, is_cached=True, is_on_disk=True),
            "waiting for data 40 % of the time: set cache_latents_to_disk = false to keep the latents in memory",
        ),
        (loading(0.4), Circumstances(workers=0, most_workers=6, is_cached=True), ""),
    ],
)
def test_advice(told, circumstances, sentence):
    assert advice(told, circumstances) == sentence


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_those_of_the_span():
    clock = Clock()
    meter = LoadMeter(PLAIN, clock)
    meter.add(images=100, waited=4.0, cpu_seconds=10.0, bytes_read=5_000_000)
    clock.now += 8
    assert meter.since_last() == Loading(0.5, 12.5, 0.625, 0.625)
    clock.now += 2
    meter.add(images=4, waited=1.0, cpu_seconds=1.0, bytes_read=0)
    assert meter.since_last() == Loading(0.5, 2.0, 0.25, 0.0)
    assert meter.wait_seconds == 5.0


def test_advice_waits_until_there_is_something_to_judge():
    clock = Clock()
    meter = LoadMeter(PLAIN, clock)
    meter.add(images=1, waited=100.0, cpu_seconds=1.0, bytes_read=0)  # processes start
    clock.now += 100
    assert meter.since_last().advice == ""
    for _ in range(3):
        clock.now += SECONDS_TO_JUDGE / 4
        meter.add(images=4, waited=SECONDS_TO_JUDGE / 8, cpu_seconds=20.0, bytes_read=0)
        assert meter.since_last().advice == ""
    clock.now += SECONDS_TO_JUDGE / 4
    meter.add(images=4, waited=SECONDS_TO_JUDGE / 8, cpu_seconds=20.0, bytes_read=0)
    assert meter.since_last().advice.startswith(
        "waiting for data 50 % of the time: raise max_data_loader_n_workers to 4"
    )


def test_numbers_for_events():
    assert loading(0.123456).numbers() == {
        "data_wait": 0.1235, "images_per_second": 10, "worker_cpu": 0.9, "mb_per_second": 12
    }  # fmt: skip
