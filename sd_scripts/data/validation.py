"""Which pictures are held out to measure the training by: decided by their content, so that no copy of one is trained on.

All contents are put in an order that only their bytes and the seed decide; a share at its start is held out. So renaming or
moving pictures changes nothing, and adding some moves at most those at the border.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sd_scripts.data.words import counted
from sd_scripts.options.dataset import DatasetOptions
from sd_scripts.options.problems import Problem, note, warning
from sd_scripts.seeds import seed_of

# Held-out pictures are measured as they are, so that two measurements differ by the model alone.
WITHOUT_VARIATION = {
    "flip_aug": False, "color_aug": False, "random_crop": False, "face_crop_aug_range": None, "shuffle_caption": False,
    "caption_dropout_rate": 0.0, "caption_dropout_every_n_epochs": 0, "caption_tag_dropout_rate": 0.0,
    "token_warmup_step": 0,
}  # fmt: skip


def held_out_count(contents: int, share: float) -> int:
    """How many different pictures are held out: at least one is, and at least one is trained on."""
    if not share or contents < 2:
        return 0
    return min(max(1, round(contents * share)), contents - 1)


def choose_held_out(contents: Iterable[str], share: float, seed: int, kept: Collection[str] = ()) -> set[str]:
    """The held-out ones of these contents (hashes); `kept` ones are never among them."""
    unique = set(contents)
    order = sorted(unique - set(kept), key=lambda content: (seed_of("validation", seed, content), content))
    return set(order[: held_out_count(len(unique), share)])


def split_datasets(
    contents: Sequence[Mapping[int, str]], options: Sequence[DatasetOptions], regularisation: Collection[str], seed: int
) -> set[str]:
    """Contents that no dataset trains on, for all datasets together.

    Args:
        contents: for each dataset, the content of its pictures by their number, without regularisation pictures.
        options: of each dataset.
        regularisation: contents of regularisation pictures, which are never held out.
        seed: of the run, where a dataset has none of its own.
    """
    held_out: set[str] = set()
    for pictures, chosen in zip(contents, options, strict=True):
        own_seed = seed if chosen.validation_seed is None else chosen.validation_seed
        held_out |= choose_held_out(pictures.values(), chosen.validation_split, own_seed, regularisation)
    return held_out


def without_variation(options: DatasetOptions) -> DatasetOptions:
    """A subset's options for measuring."""
    return options.model_copy(update=WITHOUT_VARIATION)


def check_split(shares: Sequence[float], validated: int, trained: int, dropped: int) -> list[Problem]:
    """What a user should know of the split."""
    if not any(shares):
        return []
    if not validated:
        return [
            warning("validation_split", "no picture is held out: there are too few", "add pictures, or set it to 0")
        ]
    pictures = counted(validated, "picture")
    problems = [note("validation_split", f"{pictures} held out to measure by, {trained} trained on")]
    if dropped:
        text = f"{counted(dropped, 'copy').replace('copys', 'copies')} of held-out pictures in other datasets not trained on"
        problems.append(note("validation_split", text))
    return problems
