"""Options: what is trained — an adapter, or the whole model."""

from typing import ClassVar

from sd_scripts.options.schema import Options, option


class Network(Options):
    title: ClassVar[str] = "LoRA"
    order: ClassVar[int] = 40

    network_module: str = option(
        "networks.lora", level="expert", suggestions=("networks.lora",), help="Kind of adapter."
    )
    network_dim: int | None = option(
        None,
        ge=1,
        label="Rank",
        help="Size of the adapter: 4 to 32 for one subject, more for a style; 4 when unset. The file grows with it.",
    )
    network_alpha: float = option(
        1.0,
        gt=0,
        label="Alpha",
        help="The adapter acts with alpha / rank. Equal to the rank is strong, half of it is usual.",
    )
    network_dropout: float | None = option(
        None, ge=0, lt=1, level="expert", help="Chance to drop each input of the adapter in a step."
    )
    network_args: list[str] | None = option(
        None,
        level="expert",
        help="Further arguments, each as name=value: conv_dim, conv_alpha, rank_dropout, module_dropout, "
        "loraplus_lr_ratio …",
    )
    network_weights: str | None = option(None, path="file", label="Start from LoRA", help="A LoRA file to go on from.")
    dim_from_weights: bool = option(False, level="expert", help="Take rank and alpha from that file.")
    unet_lr: float | None = option(
        None,
        ge=0,
        label="U-Net rate",
        help="Learning rate of the U-Net part; 0 leaves it out; unset: the learning rate above.",
    )
    text_encoder_lr: list[float] | None = option(
        None,
        label="Text encoder rate",
        help="Learning rate of the text encoder part; 0 leaves it out; unset: the learning rate above.",
    )
    network_train_unet_only: bool = option(False, label="U-Net only", help="Leave the text encoder as it is.")
    network_train_text_encoder_only: bool = option(
        False, label="Text encoder only", level="expert", help="Leave the U-Net as it is."
    )
    base_weights: list[str] | None = option(
        None, level="expert", help="LoRA files to merge into the base model before training."
    )
    base_weights_multiplier: list[float] | None = option(None, level="expert", help="Their strengths; 1 where missing.")
    scale_weight_norms: float | None = option(
        None, gt=0, level="expert", help="Shorten weights of the adapter that grow beyond this norm."
    )
    learning_rate: float = option(
        1e-4,
        ge=0,
        label="Learning rate",
        level="essential",
        help="Rate of every part that has none of its own. 1e-4 is usual for AdamW, 1 for Prodigy.",
    )


class FullTraining(Options):
    title: ClassVar[str] = "What is trained"
    order: ClassVar[int] = 40

    train_text_encoder: bool = option(False, help="Train the text encoder too.")
    learning_rate_te: float | None = option(
        None, ge=0, label="Text encoder rate", help="Learning rate of the text encoder; unset: the learning rate."
    )


class TextualInversion(Options):
    title: ClassVar[str] = "The new word"
    order: ClassVar[int] = 40


class ControlNet(Options):
    title: ClassVar[str] = "ControlNet"
    order: ClassVar[int] = 40


class LLLite(Options):
    title: ClassVar[str] = "ControlNet-LLLite"
    order: ClassVar[int] = 40


class Leco(Options):
    title: ClassVar[str] = "Concept pairs"
    order: ClassVar[int] = 20
