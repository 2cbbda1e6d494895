"""Options: how prompts are read."""

from typing import ClassVar, Literal

from sd_scripts.options.schema import Options, option


class TextEncoders(Options):
    title: ClassVar[str] = "Text encoders"
    order: ClassVar[int] = 15

    clip_skip: int | None = option(
        None,
        ge=1,
        le=12,
        only_for=("sd1", "sd2"),
        help="Take the text encoder's n-th last layer; 1 is the last. Anime models of the SD 1.x family usually "
        "want 2.",
    )
    max_token_length: Literal[75, 150, 225] | None = option(
        None,
        unit="tokens",
        only_for=("clip",),
        help="Longest caption that is used; 75 when unset. Longer ones are cut. 150 and 225 cost a little time per step.",
    )
    weighted_captions: bool = option(
        False,
        label="Weights in captions",
        level="expert",
        only_for=("clip",),
        help="Read (word:1.3), (word) and [word] in captions as emphasis instead of as plain brackets. Only for captions "
        "that were written that way.",
    )
    t5xxl_max_token_length: int | None = option(
        None,
        ge=1,
        label="T5 tokens",
        unit="tokens",
        level="expert",
        only_for=("t5",),
        defaults={"sd3": 256, "chroma": 512},
        available=False,
        help="Longest caption that T5 reads. Unset: 256 for SD 3 and FLUX schnell, 512 for FLUX dev and Chroma. Each "
        "further token costs time and memory in every step.",
    )
    apply_t5_attn_mask: bool = option(
        False,
        label="Mask T5 padding",
        level="expert",
        only_for=("t5",),
        available=False,
        help="Keep the model from looking at the empty places behind a short caption. Chroma needs it; FLUX and SD 3 were "
        "made without.",
    )
    apply_lg_attn_mask: bool = option(
        False,
        label="Mask CLIP padding",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Set what CLIP-L and CLIP-G give for the empty places behind a short caption to zero.",
    )
    gemma2_max_token_length: int | None = option(
        None,
        ge=1,
        label="Gemma 2 tokens",
        unit="tokens",
        level="expert",
        only_for=("lumina",),
        defaults={"lumina": 256},
        available=False,
        help="Longest caption that Gemma 2 reads, the system prompt included; 256 when unset.",
    )
    qwen3_max_token_length: int = option(
        512,
        ge=1,
        label="Qwen3 tokens",
        unit="tokens",
        level="expert",
        only_for=("anima",),
        available=False,
        help="Longest caption that Qwen3 reads.",
    )
    t5_max_token_length: int = option(
        512,
        ge=1,
        label="T5 token numbers",
        unit="tokens",
        level="expert",
        only_for=("anima",),
        available=False,
        help="How many T5 token numbers of a caption go into Anima's adapter.",
    )
    system_prompt: str | None = option(
        None,
        level="expert",
        only_for=("lumina",),
        available=False,
        help="Text put before every prompt and caption, in training and in samples. Lumina models expect one; use the one "
        "that the pictures will be made with.",
    )
    clip_l_dropout_rate: float = option(
        0.0,
        ge=0,
        le=1,
        label="CLIP-L dropout",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Share of uses in which the model gets no CLIP-L output (0 to 1), so that it learns to do without.",
    )
    clip_g_dropout_rate: float = option(
        0.0,
        ge=0,
        le=1,
        label="CLIP-G dropout",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Share of uses in which the model gets no CLIP-G output (0 to 1).",
    )
    t5_dropout_rate: float = option(
        0.0,
        ge=0,
        le=1,
        label="T5 dropout",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Share of uses in which the model gets no T5 output (0 to 1). Useful when the result shall also work without "
        "T5.",
    )
    t5xxl_device: str | None = option(
        None,
        label="T5 device",
        level="expert",
        suggestions=("cpu", "cuda"),
        only_for=("sd3",),
        available=False,
        help="Device on which T5 runs; unset: where everything else is. The CPU saves about 10 GB of GPU memory and is "
        "slow, so cache the text encoder outputs with it.",
    )
    t5xxl_dtype: Literal["float", "float32", "fp16", "bf16"] | None = option(
        None,
        label="T5 number format",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Number format of T5's weights; unset: that of mixed precision. T5 was made in bf16 and can overflow in fp16.",
    )
    save_clip: bool = option(
        False,
        label="Save CLIP too",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Write CLIP-L and CLIP-G as files beside the trained model.",
    )
    save_t5xxl: bool = option(
        False,
        label="Save T5 too",
        level="expert",
        only_for=("sd3",),
        available=False,
        help="Write T5 as a file beside the trained model; about 10 GB each time.",
    )
    fp8_vl: bool = option(
        False,
        label="Qwen2.5-VL in 8 bits",
        level="expert",
        only_for=("hunyuan_image",),
        available=False,
        help="Keep the text encoder in 8 bits: about 8 GB instead of 15, with a small change of what it says.",
    )
    text_encoder_cpu: bool = option(
        False,
        label="Text encoders on the CPU",
        level="expert",
        only_for=("hunyuan_image",),
        available=False,
        help="Run the text encoders on the CPU while captions are cached and samples are drawn. Saves their memory on the "
        "GPU; several seconds a caption.",
    )
