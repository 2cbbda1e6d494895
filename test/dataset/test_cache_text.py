"""Encoded captions: cached by caption and encoder, in memory and on disk."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from sd_scripts.data.cache_files import CacheEntryProblem
from sd_scripts.data.cache_store import STORE
from sd_scripts.data.cache_upkeep import purge
from sd_scripts.data.fixed_captions import fixed_captions
from sd_scripts.data.text_cache import TextCache
from sd_scripts.errors import UserError
from sd_scripts.models.base import Text
from test.dataset.test_cache import build as build_latents
from test.dataset.test_cache import flip


class Encoder:
    """Letters as hidden states; counts what it was given."""

    def __init__(self, *, with_rest: bool = False, dtype: torch.dtype = torch.float32):
        self.seen: list[str] = []
        self.sizes: list[int] = []
        self.with_rest = with_rest
        self.dtype = dtype

    def __call__(self, captions):
        self.seen += captions
        self.sizes.append(len(captions))
        hidden = torch.tensor([[float(ord(c)) for c in caption[:8].ljust(8)] for caption in captions])
        hidden = hidden[..., None].repeat(1, 1, 3).to(self.dtype)
        if not self.with_rest:
            return Text(hidden)
        return Text(hidden, hidden[:, 0], hidden[..., 0] > 32)


def build(plan, encode=None, to_disk=True, **options) -> tuple[TextCache, Encoder]:
    encode = encode or Encoder()
    return TextCache.build(plan, encode, **{"fingerprint": "te", "dtype": "f", "to_disk": to_disk, **options}), encode


def assert_texts(cache: TextCache, captions: list[str], **kind) -> None:
    found, expected = cache.of(captions), Encoder(**kind)(captions)
    for name in ("hidden", "pooled", "mask"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None)
        assert a is None or (a.dtype == b.dtype and torch.equal(a, b))


@pytest.mark.parametrize("to_disk", [False, True])
@pytest.mark.parametrize("with_rest", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_memory_and_disk_hold_what_was_encoded(ten_pictures, plan, to_disk, with_rest, dtype):
    kind = {"with_rest": with_rest, "dtype": dtype}
    steps = []
    cache, encode = build(
        plan(), Encoder(**kind), to_disk, batch_size=4, progress=lambda done, total: steps.append((done, total))
    )
    assert encode.sizes == [4, 4, 2]
    assert steps == [(0, 10), (4, 10), (8, 10), (10, 10)]
    captions = fixed_captions(plan())
    assert_texts(cache, captions[3:7], **kind)
    again, encode = build(plan(), Encoder(**kind), to_disk)
    assert len(encode.seen) == (0 if to_disk else 10)
    assert_texts(again, captions, **kind)
    assert again.report.reused == (10 if to_disk else 0)


def test_a_caption_is_cached_as_it_is_trained(picture, plan):
    picture("1_x/a.png", caption="one,two||three")
    picture("1_x/b.png", caption="one,two||three")
    made = plan(caption_prefix="start", caption_suffix="end", keep_tokens_separator="||", keep_tokens=1)
    assert fixed_captions(made) == ["start one, two, three end"]
    assert build(made)[1].seen == ["start one, two, three end"]


CHANGES = [{"fingerprint": "other encoder"}, {"dtype": "other format"}]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_another_encoder_or_number_format_makes_it_anew(ten_pictures, plan, change):
    build(plan())
    assert len(build(plan(), **change)[1].seen) == 10
    assert build(plan(), **change)[1].seen == []
    assert build(plan())[1].seen == []


def test_an_edited_caption_is_encoded_anew(ten_pictures, plan, tmp_path):
    build(plan())
    (tmp_path / "train" / "3_cat" / "p3.txt").write_text("something else", encoding="utf-8")
    cache, encode = build(plan())
    assert encode.seen == ["something else"]
    assert_texts(cache, ["something else"])


@pytest.mark.parametrize("to_disk", [False, True])
@pytest.mark.parametrize("option", [{"caption_dropout_rate": 0.1}, {"caption_dropout_every_n_epochs": 2}], ids=str)
def test_the_empty_caption_is_there_where_captions_are_dropped(ten_pictures, plan, option, to_disk):
    cache, encode = build(plan(**option), to_disk=to_disk)
    assert "" in encode.seen
    assert_texts(cache, ["", "cat 3, red, blue, green"])
    assert "" not in build(plan(), to_disk=False)[1].seen


@pytest.mark.parametrize("to_disk", [False, True])
def test_prompts_are_encoded_too(ten_pictures, plan, to_disk):
    cache, encode = build(plan(), to_disk=to_disk, others=["a prompt", "", "cat 3, red, blue, green"])
    assert sorted(encode.seen) == sorted({*fixed_captions(plan()), "a prompt", ""})
    assert_texts(cache, ["", "a prompt"])
    with pytest.raises(CacheEntryProblem, match="never heard of"):
        cache.of(["never heard of"])


def test_shorter_texts_are_padded_to_the_longest(ten_pictures, plan):
    def encode(captions):
        (caption,) = captions
        return Text(torch.ones(1, len(caption), 2), mask=torch.ones(1, len(caption), dtype=torch.bool))

    cache, _ = build(plan(), encode, to_disk=False, others=["ab", "abcd"])
    text = cache.of(["ab", "abcd"])
    assert text.hidden.shape == (2, 4, 2)
    assert text.mask.tolist() == [[True, True, False, False], [True] * 4]
    assert text.hidden[0, 2:].abs().max() == 0


def test_latents_and_texts_share_a_store(ten_pictures, plan, tmp_path):
    build(plan())
    build_latents(plan())
    assert build(plan())[1].seen == []
    assert build_latents(plan())[1].count == 0
    (tmp_path / "train" / "3_cat" / "p3.png").unlink()
    assert purge(plan()).dropped == 2  # its latents and its caption
    assert build(plan())[1].seen == []
    assert build_latents(plan())[1].count == 0


def test_damaged_entries_are_made_anew_and_said(ten_pictures, plan, tmp_path):
    build(plan(), Encoder(with_rest=True))
    (data,) = (tmp_path / "train").rglob(f"{STORE}/*.data")
    flip(data, 16 + 250)
    cache, encode = build(plan(), Encoder(with_rest=True))
    assert len(encode.seen) == 1
    assert data.name in "\n".join(cache.report.lines())
    assert_texts(cache, fixed_captions(plan()), with_rest=True)


def test_processes_share_the_work(ten_pictures, plan):
    barrier = threading.Barrier(3, timeout=60)

    def one(rank):
        return build(plan(), rank=rank, world_size=3, wait_for_all=barrier.wait)

    with ThreadPoolExecutor(3) as pool:
        built = list(pool.map(one, range(3)))
    assert sorted(len(encode.seen) for _, encode in built) == [3, 3, 4]
    for cache, _ in built:
        assert_texts(cache, fixed_captions(plan()))


@pytest.mark.parametrize("to_disk", [False, True])
def test_values_that_are_not_finite_stop_with_the_caption(ten_pictures, plan, to_disk):
    def encode(captions):
        text = Encoder()(captions)
        if "cat 7, red, blue, green" in captions:
            text.hidden[captions.index("cat 7, red, blue, green")] = float("nan")
        return text

    with pytest.raises(UserError, match=r"not finite.*cat 7"):
        build(plan(), encode, to_disk)


def test_a_folder_that_cannot_be_written_is_said(ten_pictures, plan, tmp_path):
    (tmp_path / "train" / "3_cat" / STORE).write_text("a file")
    with pytest.raises(UserError, match=r"cannot write .*3_cat.*cache_text_encoder_outputs_to_disk"):
        build(plan())


def test_a_file_that_vanishes_is_named(ten_pictures, plan, tmp_path):
    cache, _ = build(plan())
    shutil.rmtree(next(Path(tmp_path / "train").rglob(STORE)))
    with pytest.raises(CacheEntryProblem, match=r"\.data has disappeared"):
        cache.of(["cat 3, red, blue, green"])
