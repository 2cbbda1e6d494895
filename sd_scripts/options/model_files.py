"""Options: the model to train on."""

from typing import ClassVar, Literal

from sd_scripts.options.schema import Options, option


class ModelFiles(Options):
    title: ClassVar[str] = "Model"
    order: ClassVar[int] = 10

    pretrained_model_name_or_path: str | None = option(
        None,
        label="Base model",
        level="essential",
        path="model",
        help="The model to train on: a .safetensors or .ckpt file, or a diffusers folder. What kind of model it "
        "is, is read from the file.",
    )
    v_parameterization: bool = option(
        False,
        label="V-prediction model",
        help="The base model predicts velocity instead of noise (SD 2.x 768-v and other v-prediction models). The "
        "file does not say it, so tick it for those.",
    )
    v2: bool = option(
        False,
        label="SD 2.x model",
        level="expert",
        help="The base model is Stable Diffusion 2.x. It is recognised without this; the option only makes a run "
        "stop when the file is something else.",
    )
    vae: str | None = option(
        None,
        label="Separate VAE",
        path="model",
        help="A VAE file or folder to use instead of the one inside the base model.",
    )
    clip_skip: int | None = option(
        None,
        ge=1,
        le=12,
        help="Take the text encoder's n-th last layer; 1 is the last. Anime models of the SD 1.x family usually "
        "want 2.",
    )
    max_token_length: Literal[75, 150, 225] | None = option(
        None,
        unit="tokens",
        help="Longest caption that is used; 75 when unset. Longer ones are cut. 150 and 225 cost a little time per step.",
    )
    no_half_vae: bool = option(
        False,
        label="VAE in full precision",
        level="expert",
        help="Run the VAE in 32 bits. Needed for VAEs that give black pictures in fp16; costs memory while encoding.",
    )
