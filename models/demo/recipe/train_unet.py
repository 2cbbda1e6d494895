"""Train the demo model's U-Net and text encoder from scratch, with this project's own fine-tuning loop.

    python models/demo/recipe/train_unet.py --vae build/demo_vae --work build/demo --output models/demo/demo.safetensors

It makes a small SD 1.x model of random weights around the finished autoencoder, draws the world into a folder, and starts
`fine_tune.py` on both with the settings of `unet.toml`; further arguments are passed on to it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from world import write_folder

RECIPE = Path(__file__).resolve().parent
ROOT = RECIPE.parents[2]
WORLD_SEED = 21

UNET = {
    "in_channels": 4,
    "out_channels": 4,
    "block_out_channels": (96, 96, 72, 72),
    "layers_per_block": 1,
    "cross_attention_dim": 64,
    "attention_head_dim": 8,  # of SD 1.x: eight heads in every attention
    "norm_num_groups": 24,
    "sample_size": 8,
}
TEXT_ENCODER = {
    "vocab_size": 49408,
    "hidden_size": 64,
    "projection_dim": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 1,
    "max_position_embeddings": 77,
    "hidden_act": "quick_gelu",
    "bos_token_id": 49406,
    "eos_token_id": 49407,
}


def write_fresh_model(vae_folder: Path, path: Path, seed: int) -> None:
    """A model of the demo's size in one file: the given autoencoder, the rest random."""
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    from sd_scripts.models.sd import SDSettings, StableDiffusion1

    torch.manual_seed(seed)
    model = StableDiffusion1(
        UNet2DConditionModel(**UNET),
        AutoencoderKL.from_pretrained(vae_folder),
        CLIPTextModel(CLIPTextConfig(**TEXT_ENCODER)),
        SDSettings(),
    )
    model.save(path, None, {})


def fine_tune(model: Path, pictures: Path, output: Path, processes: int, further: list[str]) -> Path:
    """Run the trainer; returns the file it wrote."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
    options = ["--config_file", RECIPE / "unet.toml", "--pretrained_model_name_or_path", model]
    options += ["--train_data_dir", pictures, "--output_dir", output, *further]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(RECIPE), str(ROOT)]), "ACCELERATE_USE_CPU": "true"}
    subprocess.run([*launch, ROOT / "sd_scripts" / "fine_tune.py", *map(str, options)], env=environment, check=True)
    return output / "demo.safetensors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vae", type=Path, required=True, help="folder that train_vae.py wrote")
    parser.add_argument("--work", type=Path, required=True, help="folder for the pictures and the run")
    parser.add_argument("--output", type=Path, required=True, help="the finished model")
    parser.add_argument("--pictures", type=int, default=8192)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the first weights")
    args, further = parser.parse_known_args()
    fresh = args.work / "fresh.safetensors"
    args.work.mkdir(parents=True, exist_ok=True)
    write_fresh_model(args.vae, fresh, args.seed)
    write_folder(args.work / "pictures" / "1_world", WORLD_SEED, args.pictures)
    shutil.copyfile(fine_tune(fresh, args.work / "pictures", args.work / "run", args.processes, further), args.output)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
