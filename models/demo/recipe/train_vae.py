"""Train the demo model's autoencoder: the structure of the SD 1.x one, narrow, on the world's pictures.

    torchrun --nproc_per_node 2 models/demo/recipe/train_vae.py --output build/demo_vae

Writes a diffusers folder and prints the PSNR on pictures it never saw. Two processes of one thread each are faster on
two cores than one of two threads: they wait for each other once a step instead of once a layer.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from diffusers import AutoencoderKL
from muon import Muon
from torch import Tensor, nn
from torch.nn import functional
from world import confetti, draw

SD1_SCALE = 0.18215  # fixed by the SD 1.x layout: the denoiser sees latents times this
CONFETTI_SHARE = 4  # every fourth training picture
MUON_RATE, ADAM_RATE = 0.02, 2e-3
TRAIN_SEED, CONFETTI_SEED, HELD_OUT_SEED = 11, 12, 13

CONFIG = {
    "in_channels": 3,
    "out_channels": 3,
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (16, 32, 64, 64),
    "layers_per_block": 1,
    "latent_channels": 4,
    "norm_num_groups": 4,
    "sample_size": 64,
    "scaling_factor": SD1_SCALE,
}


def pixels_of(pictures: list) -> Tensor:
    """Pictures as (b, 3, 64, 64) in -1…1."""
    stacked = torch.from_numpy(np.stack([np.asarray(picture) for picture in pictures]))
    return (stacked.permute(0, 3, 1, 2).float() / 127.5 - 1).contiguous(memory_format=torch.channels_last)


def batch_of(step: int, size: int, rank: int = 0, processes: int = 1) -> Tensor:
    """The part of training batch number `step` that belongs to a process; no picture comes twice."""
    return pixels_of(
        [
            confetti(CONFETTI_SEED, index) if index % CONFETTI_SHARE == 0 else draw(TRAIN_SEED, index)[0]
            for index in range(step * size + rank, (step + 1) * size, processes)
        ]
    )


def held_out(count: int) -> Tensor:
    return pixels_of([draw(HELD_OUT_SEED, index)[0] for index in range(count)])


def reconstruction_loss(made: Tensor, wanted: Tensor) -> Tensor:
    """L1 + L2 of the pixels, and L1 of their differences to the next pixel, which keeps edges in place."""
    error = made - wanted
    edges = error.diff(dim=2).abs().mean() + error.diff(dim=3).abs().mean()
    return error.abs().mean() + 2 * error.square().mean() + 0.5 * edges


def rate_factor(step: int, steps: int, warmup: int = 50) -> float:
    """Share of the full learning rate: a short rise, then a cosine down to 0."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


@torch.no_grad()
def follow(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Move the averaged weights a little towards the current ones."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)


def average_gradients(model: nn.Module, processes: int) -> None:
    """Give every process the mean gradient of all."""
    if processes == 1:
        return
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= processes
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def make_optimizers(vae: AutoencoderKL) -> list[tuple[torch.optim.Optimizer, float]]:
    """Muon for the inner matrices, Adam for the rest, each with its peak rate."""
    outer = {"encoder.conv_in.weight", "decoder.conv_out.weight"}
    named = dict(vae.named_parameters())
    matrices = [name for name, parameter in named.items() if parameter.ndim >= 2 and name not in outer]
    rest = [name for name in named if name not in matrices]
    return [
        (Muon([named[name] for name in matrices], lr=MUON_RATE), MUON_RATE),
        (
            torch.optim.AdamW([named[name] for name in rest], lr=ADAM_RATE, betas=(0.9, 0.99), weight_decay=0.0),
            ADAM_RATE,
        ),
    ]


def train(steps: int, batch_size: int, kl_weight: float, seed: int) -> AutoencoderKL:
    rank, processes = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    torch.manual_seed(seed)  # the same first weights everywhere …
    vae = AutoencoderKL(**CONFIG).to(memory_format=torch.channels_last)
    torch.manual_seed(seed + rank)  # … but not the same noise
    average = copy.deepcopy(vae).eval().requires_grad_(False)
    optimizers = make_optimizers(vae)
    began = time.monotonic()
    for step in range(steps):
        pixels = batch_of(step, batch_size, rank, processes)
        posterior = vae.encode(pixels).latent_dist
        made = vae.decode(posterior.sample()).sample
        kl = posterior.kl().mean() / posterior.mean[0].numel()
        loss = reconstruction_loss(made, pixels) + kl_weight * kl
        vae.zero_grad(set_to_none=True)
        loss.backward()
        average_gradients(vae, processes)
        nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        for optimizer, peak in optimizers:
            optimizer.param_groups[0]["lr"] = peak * rate_factor(step, steps)
            optimizer.step()
        follow(average, vae, decay=min(0.998, (1 + step) / (10 + step)))
        if rank == 0 and step % 100 == 0:
            mse = functional.mse_loss(made, pixels).item() / 4
            seconds = time.monotonic() - began
            print(
                f"{step:5} loss {loss.item():.4f} kl {kl.item():.2f} psnr {psnr(mse):.1f} {seconds:.0f} s", flush=True
            )
        if rank == 0 and step and step % 500 == 0:
            print(f"held out: {evaluate(average, 128)}", flush=True)
    return average


def psnr(mse: float) -> float:
    """dB, for a mean squared error of values in 0…1."""
    return -10 * math.log10(mse)


@torch.no_grad()
def evaluate(vae: AutoencoderKL, count: int) -> str:
    """PSNR over held-out pictures: of the mean error, and the mean of each picture's PSNR."""
    errors = []
    for pixels in held_out(count).split(32):
        made = vae.decode(vae.encode(pixels).latent_dist.mode()).sample.clamp(-1, 1)
        errors.append((made - pixels).square().mean(dim=(1, 2, 3)) / 4)
    each = torch.cat(errors)
    return f"{psnr(each.mean().item()):.2f} dB overall, {np.mean([psnr(e) for e in each.tolist()]):.2f} dB mean of pictures"


@torch.no_grad()
def normalise_latents(vae: AutoencoderKL, count: int = 1024) -> None:
    """Fold a shift and scale per channel into the 1x1 convolutions at the latents, so that 0.18215 is the right factor.

    Afterwards latents * 0.18215 have mean 0 and standard deviation 1 in each channel; decoded pictures do not change.
    """
    latents = torch.cat([vae.encode(pixels).latent_dist.mode() for pixels in held_out(count).split(32)])
    mean = latents.mean(dim=(0, 2, 3))
    gain = 1 / (latents.std(dim=(0, 2, 3)) * SD1_SCALE)
    channels = len(mean)
    into, out_of = vae.quant_conv, vae.post_quant_conv
    into.weight[:channels] *= gain[:, None, None, None]
    into.bias[:channels] = (into.bias[:channels] - mean) * gain
    into.bias[channels:] += 2 * gain.log()  # the second half is the log variance
    out_of.bias += out_of.weight[:, :, 0, 0] @ mean
    out_of.weight /= gain[None, :, None, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for the diffusers autoencoder")
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--kl_weight", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    vae = train(args.steps, args.batch_size, args.kl_weight, args.seed)
    if dist.is_initialized():
        is_first = dist.get_rank() == 0
        dist.destroy_process_group()
        if not is_first:
            return
    print(f"before folding: {evaluate(vae, 512)}")
    normalise_latents(vae)
    print(f"after folding:  {evaluate(vae, 512)}")
    vae.save_pretrained(args.output)


if __name__ == "__main__":
    main()
