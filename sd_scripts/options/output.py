"""Options: what a run writes: weights, states, samples, logs, metadata."""

from typing import ClassVar, Literal

from sd_scripts.options.schema import Options, option

SavePrecision = Literal["float", "fp16", "bf16"]


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
    save_every_n_epochs: int | None = option(
        None, ge=1, unit="epochs", help="Also write the weights after every n-th epoch."
    )
    save_every_n_steps: int | None = option(
        None, ge=1, unit="steps", help="Also write the weights after every n-th step."
    )
    save_n_epoch_ratio: int | None = option(
        None, ge=1, level="expert", help="Write about so many files over the run, at whole epochs."
    )
    save_last_n_epochs: int | None = option(
        None, ge=1, level="expert", help="Keep the files of the last n saved epochs, delete older ones."
    )
    save_last_n_steps: int | None = option(
        None, ge=1, unit="steps", level="expert", help="Keep the step files of the last n steps, delete older ones."
    )
    save_last_n_epochs_state: int | None = option(
        None, ge=1, level="expert", help="The same for states; unset: as for the files."
    )
    save_last_n_steps_state: int | None = option(
        None, ge=1, unit="steps", level="expert", help="The same for states; unset: as for the files."
    )
    save_state: bool = option(False, help="With each file also write all that is needed to go on exactly from there.")
    save_state_on_train_end: bool = option(False, help="Write that state at the end of the run only.")
    resume: str | None = option(None, path="folder", help="A state folder to go on from.")


class Samples(Options):
    title: ClassVar[str] = "Samples"
    order: ClassVar[int] = 120

    sample_prompts: str | None = option(
        None,
        path="file",
        label="Prompt file",
        help="A .txt file with one prompt a line (marks: --w --h --s steps --l scale --d seed --n negative), or "
        ".toml or .json.",
    )
    sample_every_n_epochs: int | None = option(
        None, ge=0, unit="epochs", help="Draw the samples after every n-th epoch; 0 is never."
    )
    sample_every_n_steps: int | None = option(
        None, ge=0, unit="steps", help="Draw the samples after every n-th step; 0 is never."
    )
    sample_at_first: bool = option(False, help="Draw them before training too, to compare.")
    sample_sampler: Literal[
        "ddim", "pndm", "lms", "euler", "euler_a", "heun", "dpm_2", "dpm_2_a", "dpmsolver", "dpmsolver++", "dpmsingle",
        "k_lms", "k_euler", "k_euler_a", "k_dpm_2", "k_dpm_2_a",
    ] = option("ddim", level="expert", help="Sampler of the samples.")  # fmt: skip


class Logging(Options):
    title: ClassVar[str] = "Logging"
    order: ClassVar[int] = 150

    logging_dir: str | None = option(
        None, path="output_folder", help="Folder for TensorBoard's logs; unset: inside the run folder."
    )
    log_with: Literal["tensorboard", "none"] = option(
        "tensorboard", level="expert", help="Where curves are logged besides the run folder."
    )
    log_prefix: str | None = option(None, level="expert", help="Start of the log folder's name.")
    log_tracker_name: str | None = option(None, level="expert", help="Name under which the run appears in the log.")
    run_dir: str | None = option(
        None,
        level="expert",
        path="output_folder",
        help="The run's own folder (events, log, settings); unset: a new one in the output folder's runs.",
    )
    console_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = option(
        "INFO", level="expert", help="What the console shows."
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
    training_comment: str | None = option(None, level="expert", help="Free text stored in the file.")
    no_metadata: bool = option(False, level="expert", help="Store only what other programs need to use the file.")


class Hub(Options):
    title: ClassVar[str] = "Hugging Face hub"
    order: ClassVar[int] = 155
