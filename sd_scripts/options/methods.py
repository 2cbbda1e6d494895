"""Options: what is trained — an adapter, or the whole model."""

from typing import ClassVar, Literal

from sd_scripts.options.schema import SET, Options, option

NETWORK_MODULES = (
    "networks.lora", "networks.lora_fa", "networks.dylora", "networks.loha", "networks.lokr", "networks.oft",
    "networks.lora_flux", "networks.oft_flux", "networks.lora_sd3", "networks.lora_lumina", "networks.lora_anima",
    "networks.lora_hunyuan_image", "lycoris.kohya",
)  # fmt: skip
"""Kinds of adapters by the names that settings files use."""


class Network(Options):
    title: ClassVar[str] = "LoRA"
    order: ClassVar[int] = 40

    network_module: str = option(
        "networks.lora",
        label="Kind of adapter",
        suggestions=NETWORK_MODULES,
        help="What is trained: a LoRA, or one of its relatives. Any program reads a LoRA; the others need one that knows "
        "them.",
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
        None, ge=0, level="expert", help="Shorten weights of the adapter that grow beyond this norm; 0 is off."
    )
    initial_epoch: int | None = option(
        None,
        ge=1,
        unit="epochs",
        level="expert",
        help="Begin with this epoch, 1 being the first: steps, pictures and the learning rate are those that it has in a "
        "run from the start. Overrides where a resumed state stood.",
    )
    initial_step: int | None = option(
        None,
        ge=0,
        unit="steps",
        level="expert",
        help="Begin after so many steps, in the same way. Decides over the first epoch above; must be below the length of "
        "the run.",
    )
    skip_until_initial_step: bool = option(
        False,
        level="expert",
        only_with={"initial_step": SET},
        help="Pass over the pictures that the steps before would have used. This is always done, and takes no time.",
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

    train_text_encoder: bool = option(
        False, only_for=("noise", "sd3"), help="Train the text encoder too. Costs memory and time."
    )
    learning_rate_te: float | None = option(
        None,
        ge=0,
        label="Text encoder rate",
        only_for=("sd1", "sd2"),
        only_with={"train_text_encoder": True},
        help="Learning rate of the text encoder; 0 leaves it as it is; unset: the learning rate.",
    )
    learning_rate_te1: float | None = option(
        None,
        ge=0,
        label="Rate of text encoder 1",
        only_for=("sdxl", "sd3"),
        only_with={"train_text_encoder": True},
        help="Learning rate of the first text encoder (CLIP-L); 0 leaves it as it is; unset: the learning rate.",
    )
    learning_rate_te2: float | None = option(
        None,
        ge=0,
        label="Rate of text encoder 2",
        only_for=("sdxl", "sd3"),
        only_with={"train_text_encoder": True},
        help="Learning rate of the second text encoder (CLIP-G); 0 leaves it as it is; unset: the learning rate.",
    )
    learning_rate_te3: float | None = option(
        None,
        ge=0,
        label="Rate of T5",
        level="expert",
        only_for=("sd3",),
        only_with={"train_t5xxl": True},
        available=False,
        help="Learning rate of T5-XXL; 0 leaves it as it is; unset: the learning rate.",
    )
    train_t5xxl: bool = option(
        False,
        label="Train T5 too",
        level="expert",
        only_for=("sd3",),
        only_with={"train_text_encoder": True},
        available=False,
        help="Train T5-XXL along with the two CLIP encoders. It has 4.7 billion weights, more than most image models.",
    )
    use_t5xxl_cache_only: bool = option(
        False,
        label="Cache T5 only",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Encode the captions with T5 once at the start, so that the CLIP encoders can be trained meanwhile.",
    )
    stop_text_encoder_training: int | None = option(
        None,
        ge=-1,
        unit="steps",
        level="expert",
        only_for=("sd1", "sd2"),
        only_with={"train_text_encoder": True},
        available=False,
        help="Leave the text encoder as it is from this step on; -1 never trains it. Unset: it learns to the end.",
    )
    no_token_padding: bool = option(
        False,
        level="expert",
        only_for=("sd1", "sd2"),
        available=False,
        help="Give the text encoder captions of their own length instead of filling them up to the full one.",
    )
    block_lr: str | None = option(
        None,
        label="Rates by block",
        level="expert",
        only_for=("sdxl",),
        help="23 learning rates, separated by commas, in place of the one of the U-Net: embeddings, 9 input blocks, "
        "3 middle, 9 output, last layer. 0 leaves a block as it is.",
    )
    num_last_block_to_freeze: int | None = option(
        None,
        ge=0,
        unit="blocks",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Leave so many transformer blocks at the end of the model as they are. Saves memory.",
    )
    self_attn_lr: float | None = option(
        None,
        ge=0,
        label="Rate of self-attention",
        level="expert",
        only_for=("anima",),
        available=False,
        help="Learning rate of the self-attention layers; 0 leaves them as they are; unset: the learning rate.",
    )
    cross_attn_lr: float | None = option(
        None,
        ge=0,
        label="Rate of cross-attention",
        level="expert",
        only_for=("anima",),
        available=False,
        help="Learning rate of the layers that look at the caption; 0 leaves them as they are; unset: the learning rate.",
    )
    mlp_lr: float | None = option(
        None,
        ge=0,
        label="Rate of the MLPs",
        level="expert",
        only_for=("anima",),
        available=False,
        help="Learning rate of the feed-forward layers; 0 leaves them as they are; unset: the learning rate.",
    )
    mod_lr: float | None = option(
        None,
        ge=0,
        label="Rate of modulation",
        level="expert",
        only_for=("anima",),
        available=False,
        help="Learning rate of the modulation layers; 0 leaves them as they are; unset: the learning rate.",
    )
    llm_adapter_lr: float | None = option(
        None,
        ge=0,
        label="Rate of the LLM adapter",
        level="expert",
        only_for=("anima",),
        available=False,
        help="Learning rate of the adapter between text encoder and model; 0 leaves it as it is; unset: the learning rate.",
    )


class TextualInversion(Options):
    title: ClassVar[str] = "The new word"
    order: ClassVar[int] = 40

    token_string: str | None = option(
        None,
        label="New word",
        level="essential",
        help="The word that will stand for what the pictures show. It must be none that the model knows as one piece.",
    )
    init_word: str | None = option(
        None,
        label="Start from word",
        level="essential",
        help="A word that comes near; the new one starts with its meaning. Unset: a random start, which takes longer.",
    )
    num_vectors_per_token: int = option(
        1,
        ge=1,
        label="Vectors",
        level="essential",
        help="How much the word can hold: 1 to 8 are usual. Each takes one of the 75 places of a prompt.",
    )
    weights: str | None = option(
        None, label="Start from embedding", path="file", help="An embedding file to go on from; with as many vectors."
    )
    use_object_template: bool = option(
        False,
        label="Built-in captions for an object",
        help='Use captions such as "a photo of a …" instead of those beside the pictures. For things and persons.',
    )
    use_style_template: bool = option(
        False,
        label="Built-in captions for a style",
        help='Use captions such as "a painting in the style of …" instead of those beside the pictures.',
    )


class ControlNet(Options):
    title: ClassVar[str] = "ControlNet"
    order: ClassVar[int] = 40

    controlnet_model_name_or_path: str | None = option(
        None,
        label="Start from ControlNet",
        path="model",
        help="A ControlNet to go on from. Unset: a new one, made from the base model.",
    )
    control_net_lr: float = option(
        1e-4,
        ge=0,
        label="Rate of the connections",
        level="expert",
        only_for=("sdxl",),
        help="Learning rate of the layers that only a ControlNet has; its copy of the U-Net uses the learning rate.",
    )


class LLLite(Options):
    title: ClassVar[str] = "ControlNet-LLLite"
    order: ClassVar[int] = 40

    cond_emb_dim: int = option(
        32,
        ge=2,
        label="Width of the guiding picture",
        level="essential",
        help="Numbers that describe a place of the guiding picture; an even number. 16 to 64 are usual.",
    )
    network_dim: int = option(
        64,
        ge=1,
        label="Rank",
        level="essential",
        only_for=("sdxl",),
        help="Inner width of each module. The file grows with it.",
    )
    network_dropout: float | None = option(
        None, ge=0, lt=1, level="expert", only_for=("sdxl",), help="Chance to drop each inner value in a step."
    )
    network_weights: str | None = option(
        None, path="file", label="Start from LLLite", help="A ControlNet-LLLite file to go on from."
    )
    lllite_mlp_dim: int = option(
        64, ge=1, label="Rank", level="essential", only_for=("anima",), help="Inner width of each module."
    )
    lllite_cond_dim: int = option(
        64,
        ge=1,
        label="Width of the picture network",
        level="expert",
        only_for=("anima",),
        help="Channels of the network that reads the guiding picture.",
    )
    lllite_cond_resblocks: int = option(
        1,
        ge=0,
        label="Depth of the picture network",
        level="expert",
        only_for=("anima",),
        help="Residual blocks of the network that reads the guiding picture.",
    )
    lllite_target_layers: str = option(
        "self_attn_q",
        label="Guided layers",
        level="expert",
        only_for=("anima",),
        suggestions=("self_attn_q", "self_attn_qkv", "self_attn_qkv_cross_q"),
        help="Which layers are guided: one of the sets offered, or pieces separated by commas out of self_attn_q_pre, "
        "self_attn_kv_pre, cross_attn_q_pre, mlp_fc1_pre.",
    )
    lllite_use_aspp: bool = option(
        False,
        label="Look at several scales",
        level="expert",
        only_for=("anima",),
        help="Let the picture network see far and near at once. For guidance that depends on large shapes.",
    )
    lllite_dropout: float | None = option(
        None, ge=0, lt=1, level="expert", only_for=("anima",), help="Chance to drop each inner value in a step."
    )
    lllite_multiplier: float = option(
        1.0, level="expert", only_for=("anima",), help="Strength with which the guidance acts during training."
    )
    lllite_cond_in_channels: Literal[3, 4] = option(
        3,
        label="Channels of the guiding picture",
        level="expert",
        only_for=("anima",),
        help="3 for a picture; 4 for a picture and a mask, which trains filling in.",
    )
    lllite_inpaint_masked_input: bool = option(
        False,
        label="Blank what is masked",
        level="expert",
        only_for=("anima",),
        only_with={"lllite_cond_in_channels": 4},
        help="Show the guiding picture without what the mask covers.",
    )


class Leco(Options):
    title: ClassVar[str] = "Concept pairs"
    order: ClassVar[int] = 20

    prompts_file: str | None = option(
        None,
        label="Prompt pairs",
        level="essential",
        path="file",
        help="A TOML or YAML file that says which prompts are changed into which.",
    )
    max_denoising_steps: int = option(
        40,
        ge=2,
        unit="steps",
        level="expert",
        help="Steps of a whole drawing. Each training step draws a random part of them first, so more cost more time.",
    )
    leco_denoise_guidance_scale: float = option(
        3.0, ge=0, label="Guidance while drawing", level="expert", help="Guidance of that partial drawing; 1 is none."
    )
