"""Score a model on captions of the demo world: how many samples show the named colour, and how many the named shape.

python -m test.demo.score models/demo/demo.safetensors
python -m test.demo.score models/demo/demo.safetensors --concept --lora outputs/demo.safetensors
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from test.shape_check import Finding, look

if TYPE_CHECKING:
    from PIL import Image

    from sd_scripts.models.base import Architecture

CAPTIONS = (
    "a red circle on a white background",
    "a blue square on a grey background",
    "a green triangle on a beige background",
    "a yellow star on a black background",
    "a pink heart on a striped background",
    "a purple ring on a dotted background",
    "an orange cross on a checked background",
    "a cyan diamond on a shaded background",
    "a yellow moon on a black background",
    "a large red star on a grey background",
    "a large blue heart on a white background",
    "a small green circle on a beige background",
    "a small orange square on a white background, left",
    "a purple triangle on a striped background, right",
    "a pink diamond on a black background, top",
    "a cyan ring on a checked background, bottom",
    "a green cross on a dotted background",
    "a large purple moon on a shaded background",
    "a blue star on a striped background, left",
    "a red heart on a black background, bottom",
)
COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
CONCEPT_CAPTIONS = tuple(
    f"{'an' if colour == 'orange' else 'a'} {colour} ohwx mushroom on a {background} background"
    for colour, background in zip(COLOURS * 3, ("white", "grey", "black", "striped", "beige") * 4, strict=False)
)
FIRST_SEED = 1000  # of the samples; nothing was chosen by looking at them


@dataclass(frozen=True)
class Sample:
    caption: str
    picture: Image.Image
    finding: Finding

    @property
    def has_colour(self) -> bool:
        return self.finding.colour in self.caption.split()

    @property
    def has_shape(self) -> bool:
        return self.finding.shape in self.caption.replace(",", "").split()


def load(path: Path, loras: Iterable[Path] = ()) -> Architecture:
    """The model on the CPU in float32, with LoRA files merged in."""
    import torch

    from sd_scripts.adapters.lora import LoraModule
    from sd_scripts.adapters.weights import merge_files
    from sd_scripts.models.detect import inspect
    from sd_scripts.models.registry import load_architecture

    options = SimpleNamespace(
        weighted_captions=False,
        vae=None, v2=False, v_parameterization=False, clip_skip=None, max_token_length=None, no_half_vae=False,
        disable_mmap_load_safetensors=False,
    )  # fmt: skip
    model = load_architecture(options, inspect(path), "cpu", torch.float32)
    merge_files(model, [str(lora) for lora in loras], [], LoraModule)
    return model


def draw_samples(model: Architecture, captions: Iterable[str], each: int) -> Iterator[Sample]:
    """`each` samples of every caption, every one with a seed of its own."""
    for number, caption in enumerate(caption for caption in captions for _ in range(each)):
        picture = model.sample(caption, width=64, height=64, steps=20, scale=4.0, seed=FIRST_SEED + number)
        yield Sample(caption, picture, look(np.asarray(picture)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--lora", type=Path, action="append", default=[])
    parser.add_argument("--concept", action="store_true", help="captions with the demo data set's trigger word")
    parser.add_argument("--each", type=int, help="samples of each caption (5; 1 with --concept)")
    parser.add_argument("--sheet", type=Path, help="write one picture that shows all samples")
    args = parser.parse_args()
    captions = CONCEPT_CAPTIONS if args.concept else CAPTIONS
    samples = list(draw_samples(load(args.model, args.lora), captions, args.each or (1 if args.concept else 5)))
    for sample in samples:
        if not (sample.has_colour and sample.has_shape):
            print(f"{sample.caption}: {sample.finding.colour} {sample.finding.shape} ({sample.finding.overlap:.2f})")
    colours, shapes = sum(sample.has_colour for sample in samples), sum(sample.has_shape for sample in samples)
    print(f"of {len(samples)} samples {colours} show the colour and {shapes} the shape")
    if args.sheet:
        from PIL import Image

        canvas = Image.new("RGB", (10 * 64, -(-len(samples) // 10) * 64))
        for number, sample in enumerate(samples):
            canvas.paste(sample.picture, (number % 10 * 64, number // 10 * 64))
        canvas.save(args.sheet)


if __name__ == "__main__":
    main()
