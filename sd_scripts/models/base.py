"""What the rest of the program knows about a model: the `Architecture` interface and the small types it speaks in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from sd_scripts.models.families import all_families
from sd_scripts.models.family import DENOISER, VAE, LatentSpec, ModelFamily

if TYPE_CHECKING:  # the GUI and the checks read this module's names without torch
    import torch
    from PIL import Image
    from torch import Tensor, nn

    from sd_scripts.models.blocks import Blocks
    from sd_scripts.models.flow_schedule import FlowSchedule
    from sd_scripts.models.noise_schedule import NoiseSchedule


@dataclass(frozen=True)
class Tokens:
    """Token ids of a batch of captions, int64 (b, chunks, length) for each text encoder; made in loader workers."""

    ids: tuple[Tensor, ...]
    weights: Tensor | None = None  # (b, chunks, length) float32: emphasis; None without any

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Tokens:
        """The same with every tensor changed."""
        weights = None if self.weights is None else change(self.weights)
        return Tokens(tuple(change(ids) for ids in self.ids), weights)


@dataclass(frozen=True)
class Text:
    """Encoded captions: `hidden` (b, n, d) and what an architecture needs besides."""

    hidden: Tensor
    pooled: Tensor | None = None  # (b, d)
    mask: Tensor | None = None  # (b, n), True where there is text

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Text:
        """The same with every tensor changed."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return Text(**{name: None if tensor is None else change(tensor) for name, tensor in tensors.items()})


class EncodedTexts(Protocol):
    """Captions and prompts that were encoded before."""

    def of(self, captions: Sequence[str]) -> Text:
        """Their encodings, on the CPU."""


@dataclass(frozen=True)
class AdapterTarget:
    """One weight an adapter can train, under the name that LoRA files of the field use for it.

    `modules` are the parts, in row order, of what is one layer in the original model (several for a fused qkv).
    """

    name: str  # lora_unet_down_blocks_0_attentions_0_proj_in
    part: str  # "unet" or "te1", "te2", …: what learning rates and "train only" options refer to
    modules: tuple[nn.Module, ...]
    is_conv3x3: bool = False  # takes conv_dim as its rank
    needs_conv_dim: bool = False  # in a resnet or a sampler, linear ones too: trained only when conv_dim is set
    block: int | None = None  # that ranks and rates by block count it to


class Architecture(ABC):
    """A loaded model family member: its networks, and the questions that only it can answer.

    Networks are plain modules of diffusers/transformers. All tensors are on `device`/dtype of the module they enter.
    """

    name: ClassVar[str]  # of its family: "sd1", "sdxl"

    denoiser: nn.Module
    vae: nn.Module
    text_encoders: tuple[nn.Module, ...]  # in the order of part names te1, te2, …
    encoded_texts: EncodedTexts | None = None  # set where captions are cached and the text encoders were freed
    device: torch.device  # where networks compute; one that is `at_hand` only now and then may rest elsewhere
    schedule: NoiseSchedule | FlowSchedule  # which of the two says what the model predicts

    @property
    def family(self) -> ModelFamily:
        """What is known of it without loading it."""
        return all_families()[self.name]

    @property
    def latent(self) -> LatentSpec:
        """How pictures become latents."""
        return self.family.latent

    @property
    def divisor(self) -> int:
        """Picture sides must be multiples of this many px."""
        return self.family.divisor

    @property
    def networks(self) -> dict[str, nn.Module]:
        """The networks by the names of their parts; without text encoders that were freed."""
        encoders = [part.name for part in self.family.parts if part.is_text_encoder]
        return {DENOISER: self.denoiser, VAE: self.vae, **dict(zip(encoders, self.text_encoders, strict=False))}

    @property
    def predicts_v(self) -> bool:
        """Whether it is a noise model that predicts velocity."""
        return getattr(self.schedule, "prediction", None) == "v"

    @abstractmethod
    def tokenize(self, captions: Sequence[str]) -> Tokens:
        """Token ids on the CPU. Must work in a spawned worker through `tokenizer` alone."""

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The picklable part of `tokenize`, for loader workers."""

    @abstractmethod
    def encode_text(self, tokens: Tokens) -> Text:
        """Run the text encoder(s); keeps gradients when they are enabled."""

    def encode_prompts(self, prompts: Sequence[str]) -> Text:
        """Encoded prompts of samples: from the cache, where the text encoders were freed."""
        if self.encoded_texts is None:
            return self.encode_text(self.tokenize(prompts))
        return self.encoded_texts.of(prompts).mapped(lambda tensor: tensor.to(self.device))

    def free_text_encoders(self, texts: EncodedTexts, *, keeps_weights: bool) -> None:
        """From now on take captions and prompts from `texts`; the text encoders leave the device.

        Args:
            keeps_weights: in main memory, as `save` will write them; else they are dropped.
        """
        self.encoded_texts = texts
        if keeps_weights:
            for encoder in self.text_encoders:
                encoder.to("cpu")
        else:
            self.text_encoders = ()

    @abstractmethod
    def encode_image(self, pixels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Latents (b, c, h/8, w/8), scaled and shifted as the denoiser wants them, from pixels (b, 3, h, w) in -1…1."""

    @abstractmethod
    def decode_latents(self, latents: Tensor) -> Tensor:
        """Pixels (b, 3, h, w) in -1…1, float32."""

    @abstractmethod
    def predict(self, noisy: Tensor, timesteps: Tensor, text: Text, sizes: Tensor | None = None) -> Tensor:
        """The denoiser's output for noisy latents at timesteps (b,), in the schedule's prediction type: whole numbers, or
        for flow matching 1000 sigma, and the velocity noise - latents.

        Args:
            sizes: (b, 6) in px, `Batch.sizes`, for models that look at them; None: of pictures that were not cut.
        """

    def adapter_targets(self) -> Iterator[AdapterTarget]:
        """Every weight that adapters may train, in the order of LoRA files; 3x3 convolutions included."""
        networks = self.networks
        shapes = {part: {n: tuple(p.shape) for n, p in net.named_parameters()} for part, net in networks.items()}
        for target in self.family.targets(shapes):
            modules = tuple(networks[target.part].get_submodule(module) for module in target.modules)
            yield AdapterTarget(
                target.name, target.part, modules, target.is_conv3x3, target.needs_conv_dim, target.block
            )

    def idle_modules(self) -> tuple[nn.Module, ...]:
        """Modules whose output nothing uses, such as a text encoder's last layer; training leaves them out."""
        return ()

    @abstractmethod
    def set_gradient_checkpointing(self, enabled: bool) -> None:
        """Keep fewer activations for the backward pass and compute them again: less memory, about a quarter slower."""

    def blocks(self) -> Blocks:
        """The denoiser's blocks of each kind, in the order in which they run."""
        from sd_scripts.models.blocks import block_lists

        return block_lists(self.denoiser)

    @contextmanager
    def at_hand(self, *networks: nn.Module) -> Iterator[None]:
        """Within it these networks are on the device, also those that rest in main memory between their uses."""
        resting = [network for network in networks if next(network.parameters()).device.type != self.device.type]
        for network in resting:
            network.to(self.device)
        try:
            yield
        finally:
            for network in resting:
                network.to("cpu")

    def use_xformers(self) -> None:
        """Leave the attention of denoiser and VAE to the xFormers package, which the rules have found installed."""
        for network in (self.denoiser, self.vae):
            network.enable_xformers_memory_efficient_attention()

    @abstractmethod
    def sample(
        self,
        prompt: str,
        negative_prompt: str = "",
        *,
        width: int,
        height: int,
        steps: int,
        scale: float,
        seed: int,
        sampler: str = "ddim",
    ) -> Image.Image:
        """One picture, made with the networks as they are now, adapters and all. The seed alone decides the noise."""

    @abstractmethod
    def save(self, path: Path, dtype: torch.dtype | None, metadata: Mapping[str, str]) -> None:
        """Write the whole model: as a single file (`.safetensors`, `.ckpt`) or, for a folder path, as diffusers.

        Written under a temporary name and renamed. `dtype` None keeps each tensor's.
        """


class Tokenizer(ABC):
    """Captions to `Tokens`; holds no torch module, so it pickles cheaply into workers."""

    @abstractmethod
    def __call__(self, captions: Sequence[str]) -> Tokens: ...

    @abstractmethod
    def count(self, caption: str) -> int:
        """Tokens of the caption without start and end marks: for reports of captions that are too long."""

    @property
    @abstractmethod
    def limit(self) -> int:
        """Tokens of a caption that are used; what lies beyond is cut."""
