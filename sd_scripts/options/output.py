"""Options: what a run writes: weights, states, samples, logs, metadata."""

from pathlib import Path
from typing import ClassVar, Literal

from sd_scripts.options.schema import SET, Options, option
from sd_scripts.options.values import Interval

SavePrecision = Literal["float", "fp16", "bf16"]
PROMPT_SUFFIXES = (".txt", ".toml", ".json")  # a text that ends so is the name of a file with prompts


class Saving(Options):
    title: ClassVar[str] = "Saving"
    order: ClassVar[int] = 110

    output_dir: str | None = option(
        None,
        label="Output folder",
        level="essential",
        path="output_folder",
        help="Folder for the finished files. It is made when it does not exist.",
    )
    output_name: str | None = option(
        None, label="Name", level="essential", help='Name of the finished file, without suffix; "last" when unset.'
    )
    save_model_as: Literal["safetensors", "ckpt", "pt"] = option(
        "safetensors", level="expert", help="File format. safetensors is what every program reads."
    )
    save_precision: SavePrecision | None = option(
        None, help="Number format of the written weights; unset keeps the training one. fp16 halves the file."
    )
    use_safetensors: bool = option(
        False, level="expert", help="Older way to choose safetensors; used where no file format is chosen."
    )
    save_every_n_epochs: Interval | None = option(
        None, unit="epochs", help="Also write the weights after every n-th epoch; 0 is never."
    )
    save_every_n_steps: Interval | None = option(
        None, unit="steps", help="Also write the weights after every n-th step; 0 is never."
    )
    save_n_epoch_ratio: Interval | None = option(
        None, level="expert", unit="files", help="Write about so many files over the run, at whole epochs; 0 is off."
    )
    save_last_n_epochs: Interval | None = option(
        None,
        level="expert",
        unit="files",
        help="Keep the files of the last n saved epochs, delete older ones; 0 keeps all.",
    )
    save_last_n_steps: Interval | None = option(
        None,
        unit="steps",
        level="expert",
        help="Keep the step files of the last n steps, delete older ones; 0 keeps all.",
    )
    save_last_n_epochs_state: Interval | None = option(
        None,
        level="expert",
        unit="states",
        only_with={"save_state": True},
        help="The same for states; unset or 0: as for the files.",
    )
    save_last_n_steps_state: Interval | None = option(
        None,
        unit="steps",
        level="expert",
        only_with={"save_state": True},
        help="The same for states; unset or 0: as for the files.",
    )
    save_state: bool = option(False, help="With each file also write all that is needed to go on exactly from there.")
    save_state_on_train_end: bool = option(False, help="Write that state at the end of the run only.")
    resume: str | None = option(None, path="folder", help="A state folder to go on from.")
    resume_length: Literal["total", "additional"] = option(
        "total",
        label="Length counts",
        level="expert",
        only_with={"resume": SET},
        help="What epochs and steps count after a resume: all since the very first start, or those that are added now.",
    )
    on_save_error: Literal["continue", "stop"] = option(
        "continue",
        label="When a file cannot be written",
        level="expert",
        help="Go on with training, or stop, when the disk is full in the middle of a run. Older files stay whole either "
        "way, and a run whose last file cannot be written always ends with an error.",
    )


class Samples(Options):
    title: ClassVar[str] = "Samples"
    order: ClassVar[int] = 120

    sample_prompts: str | None = option(
        None,
        label="Prompts",
        help="What is drawn, one prompt a line (marks: --w --h --s steps --l scale --d seed --n negative), or a .txt file "
        "with such lines, or a .toml or .json file.",
    )
    sample_every_n_epochs: Interval | None = option(
        None, unit="epochs", help="Draw the samples after every n-th epoch; 0 is never."
    )
    sample_every_n_steps: Interval | None = option(
        None, unit="steps", help="Draw the samples after every n-th step; 0 is never."
    )
    sample_at_first: bool = option(False, help="Draw them before training too, to compare.")
    sample_sampler: Literal[
        "ddim", "pndm", "lms", "euler", "euler_a", "heun", "dpm_2", "dpm_2_a", "dpmsolver", "dpmsolver++", "dpmsingle",
        "k_lms", "k_euler", "k_euler_a", "k_dpm_2", "k_dpm_2_a",
    ] = option("ddim", level="expert", only_for=("noise",), help="Sampler of the samples.")  # fmt: skip
    sample_batch_size: int | None = option(
        None,
        ge=1,
        unit="pictures",
        level="expert",
        only_for=("lumina",),
        available=False,
        help="Samples drawn at a time; unset: as many as the batch size.",
    )

    @property
    def prompt_lines(self) -> str | None:
        """The prompts, where the option holds them itself instead of naming a file."""
        text = self.sample_prompts
        if text is None or ("\n" not in text and (text.lower().endswith(PROMPT_SUFFIXES) or _is_file(text))):
            return None
        return text


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # longer than a name can be
        return False


class Logging(Options):
    title: ClassVar[str] = "Logging"
    order: ClassVar[int] = 150

    logging_dir: str | None = option(
        None, path="output_folder", help="Folder for TensorBoard's logs; unset: inside the run folder."
    )
    log_with: Literal["tensorboard", "wandb", "all", "none"] = option(
        "tensorboard",
        level="expert",
        help="Where curves are logged besides the run folder: TensorBoard, Weights & Biases, both or neither.",
    )
    log_prefix: str | None = option(None, level="expert", help="Start of the log folder's name.")
    log_tracker_name: str | None = option(None, level="expert", help="Name under which the run appears in the log.")
    log_tracker_config: str | None = option(
        None,
        level="expert",
        path="file",
        help="A TOML file with further settings for TensorBoard or Weights & Biases.",
    )
    log_config: bool = option(False, level="expert", help="Log the settings of the run too, without paths and secrets.")
    wandb_run_name: str | None = option(
        None,
        level="expert",
        only_with={"log_with": ("wandb", "all")},
        help="Name of the run at Weights & Biases; unset: that of the output.",
    )
    wandb_api_key: str | None = option(
        None,
        level="expert",
        secret=True,
        environment="WANDB_API_KEY",
        only_with={"log_with": ("wandb", "all")},
        help="Key of your account at Weights & Biases; unset: that of WANDB_API_KEY, or of a login with their program.",
    )
    run_dir: str | None = option(
        None,
        level="expert",
        path="output_folder",
        help="The run's own folder (events, log, settings); unset: a new one in the output folder's runs.",
    )
    console_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = option(
        "INFO", level="expert", help="What the console shows."
    )
    console_log_file: str | None = option(
        None,
        level="expert",
        path="file",
        help="A file that gets the messages instead of the console; it is overwritten. The run folder's log has them all "
        "the same.",
    )
    console_log_simple: bool = option(
        False, level="expert", help="Write messages to standard output as they are, without time and level."
    )


class Metadata(Options):
    title: ClassVar[str] = "About the file"
    order: ClassVar[int] = 160

    metadata_title: str | None = option(None, level="expert", help="Title stored in the file; unset: its name.")
    metadata_author: str | None = option(None, level="expert", help="Author stored in the file.")
    metadata_description: str | None = option(None, level="expert", help="Description stored in the file.")
    metadata_license: str | None = option(None, level="expert", help="Licence stored in the file.")
    metadata_tags: str | None = option(None, level="expert", help="Tags stored in the file, separated by commas.")
    metadata_usage_hint: str | None = option(None, level="expert", help="A hint for whoever uses the file.")
    metadata_trigger_phrase: str | None = option(None, level="expert", help="The words that call up what was trained.")
    metadata_merged_from: str | None = option(None, level="expert", help="Models that the file was made from.")
    metadata_thumbnail: str | None = option(
        None,
        level="expert",
        help="A picture stored in the file, which grows by its size: a picture file, or a data: URL.",
    )
    metadata_preprocessor: str | None = option(
        None, level="expert", help="What prepares the guiding picture of a ControlNet, for example canny."
    )
    metadata_is_negative_embedding: str | None = option(
        None,
        level="expert",
        suggestions=("true", "false"),
        help="Whether the embedding belongs into the negative prompt.",
    )
    training_comment: str | None = option(None, level="expert", help="Free text stored in the file.")
    no_metadata: bool = option(False, level="expert", help="Store only what other programs need to use the file.")


class Hub(Options):
    title: ClassVar[str] = "Hugging Face hub"
    order: ClassVar[int] = 155

    huggingface_repo_id: str | None = option(
        None,
        label="Repository",
        level="expert",
        help="Where to upload every finished file, as owner/name. Unset: nothing is uploaded.",
    )
    huggingface_repo_type: Literal["model", "dataset", "space"] | None = option(
        None,
        label="Kind of repository",
        level="expert",
        only_with={"huggingface_repo_id": SET},
        help="What kind of repository it is; unset: a model.",
    )
    huggingface_path_in_repo: str | None = option(
        None,
        label="Folder in it",
        level="expert",
        only_with={"huggingface_repo_id": SET},
        help="The folder of the repository that gets the files; unset: its top.",
    )
    huggingface_token: str | None = option(
        None,
        label="Access token",
        level="expert",
        secret=True,
        environment="HF_TOKEN",
        help="A token that may write there; unset: that of HF_TOKEN, or of a login with the hub's own program.",
    )
    huggingface_repo_visibility: Literal["private", "public"] | None = option(
        None,
        label="Visibility",
        level="expert",
        only_with={"huggingface_repo_id": SET},
        help="Who sees the repository, if it has to be made; unset: only you.",
    )
    async_upload: bool = option(
        False,
        label="Upload beside the training",
        level="expert",
        only_with={"huggingface_repo_id": SET},
        help="Go on with training while a file is uploaded. The last one is always waited for.",
    )
    save_state_to_huggingface: bool = option(
        False,
        label="Upload states too",
        level="expert",
        only_with={"huggingface_repo_id": SET},
        help="Upload the states too; each is several times as large as the file.",
    )
    resume_from_huggingface: bool = option(
        False,
        label="Resume from the hub",
        level="expert",
        only_with={"resume": SET},
        help="Take the state to resume from the hub; it is then named owner/name/folder:revision:kind.",
    )
