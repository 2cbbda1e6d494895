"""Options: pictures, captions, buckets, caches, loader. The same names are keys of a dataset file."""

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from sd_scripts.options.schema import Options, option
from sd_scripts.options.validation import Validation
from sd_scripts.options.values import Interval


class DatasetSource(Options):
    title: ClassVar[str] = "Pictures"
    order: ClassVar[int] = 20

    train_data_dir: str | None = option(
        None,
        label="Picture folder",
        level="essential",
        path="folder",
        help="The folder that holds folders named <repeats>_<name>, for example 10_cat, with the pictures in them.",
    )
    reg_data_dir: str | None = option(
        None,
        label="Regularisation folder",
        path="folder",
        help="Pictures of the general class, in folders named like the training ones. They keep the model from "
        "forgetting the class.",
    )
    dataset_config: str | None = option(
        None,
        label="Dataset file",
        path="file",
        help="A TOML or JSON file that describes the datasets in full. It is used instead of the folders above.",
    )
    in_json: str | None = option(
        None,
        label="Caption table",
        level="expert",
        path="file",
        help="A JSON or JSONL file with the captions of all pictures, as the captioning tools write it. Used instead of "
        "caption files and folder names.",
    )
    conditioning_data_dir: str | None = option(
        None,
        label="Guiding pictures",
        path="folder",
        help="A folder with a second picture of the same name for each one: what a ControlNet is guided by, or the mask "
        "of the loss.",
    )
    dataset_class: str | None = option(
        None,
        level="expert",
        help="A dataset class of your own, as package.module.Class; it is used instead of all other dataset options.",
    )
    train_batch_size: int = option(
        1,
        ge=1,
        label="Batch size",
        help="Pictures in one step on each device. Larger is steadier and needs more memory; scale the learning "
        "rate along.",
    )
    dataset_repeats: int = option(
        1,
        ge=1,
        level="expert",
        help="How often each picture is used per epoch where a dataset file does not say it.",
    )
    prior_loss_weight: float = option(
        1.0,
        ge=0,
        level="expert",
        help="Weight of the loss on regularisation pictures.",
    )
    train_inpainting: bool = option(
        False,
        label="Train filling in",
        only_for=("unet",),
        available=False,
        help="Mask random parts of each picture and train to fill them in. The result is an inpainting model; latents "
        "cannot be cached.",
    )
    debug_dataset: bool = option(
        False, level="expert", available=False, help="Show what would be trained on, picture by picture, and stop."
    )
    on_bad_image: Literal["stop", "skip"] = option(
        "stop",
        label="Unreadable pictures",
        help="What to do with a picture that cannot be read: stop before anything is trained, or skip it and list it.",
    )
    max_data_loader_n_workers: Annotated[int, Ge(0)] | Literal["auto"] = option(
        "auto",
        label="Loader processes",
        level="expert",
        help='Processes that read pictures while the model trains, at most. "auto" takes up to three quarters of the cores; 0 '
        "reads in the training process, as cached latents always are: handing them over would take longer.",
    )
    persistent_data_loader_workers: bool = option(
        True,
        level="expert",
        help="Keep the loader processes from one epoch to the next. Switching it off costs seconds at each epoch.",
    )


class Captions(Options):
    title: ClassVar[str] = "Captions"
    order: ClassVar[int] = 50

    caption_extension: str | None = option(
        None,
        suggestions=(".txt", ".caption"),
        formerly=("caption_extention",),
        help="Suffix of the caption files. Unset: .caption where such files lie beside the pictures, else .txt.",
    )
    caption_separator: str = option(",", level="expert", help="What separates the tags of a caption.")
    shuffle_caption: bool = option(False, help="Shuffle the tags of a caption each time it is used.")
    keep_tokens: int = option(
        0, ge=0, unit="tags", help="So many tags at the start of a caption are neither shuffled nor dropped."
    )
    keep_tokens_separator: str | None = option(
        None,
        level="expert",
        help="A marker in the captions: what stands before it stays in place. Used instead of keep_tokens.",
    )
    secondary_separator: str | None = option(
        None,
        level="expert",
        help="A separator inside a tag: its pieces stay together when tags are shuffled or dropped.",
    )
    enable_wildcard: bool = option(
        False,
        level="expert",
        help="Let {a|b|c} in a caption stand for one of its choices, and use one line of a caption with several.",
    )
    caption_prefix: str | None = option(None, level="expert", help="Text put before every caption.")
    caption_suffix: str | None = option(None, level="expert", help="Text put after every caption.")
    caption_dropout_rate: float = option(
        0.0, ge=0, le=1, level="expert", help="Share of uses in which the whole caption is left out (0 to 1)."
    )
    caption_dropout_every_n_epochs: Interval = option(
        0, unit="epochs", level="expert", help="Leave all captions out in every n-th epoch; 0 is never."
    )
    caption_tag_dropout_rate: float = option(
        0.0, ge=0, le=1, level="expert", help="Chance for each tag to be left out (0 to 1); kept tags stay."
    )
    token_warmup_min: int = option(
        1, ge=0, unit="tags", level="expert", help="Tags in use at the first step of the tag warm-up."
    )
    token_warmup_step: float = option(
        0,
        ge=0,
        unit="steps",
        level="expert",
        help="Step at which all tags are in use; below 1 it is a share of all steps; 0 is off.",
    )


class Images(Options):
    title: ClassVar[str] = "Size and buckets"
    order: ClassVar[int] = 30

    resolution: str = option(
        "512",
        level="essential",
        unit="px",
        suggestions=("512", "768", "1024"),
        help="Size to train at: one number for a square, or width,height. With buckets it is the area that every "
        "shape gets.",
    )
    enable_bucket: bool = option(
        True,
        label="Aspect buckets",
        help="Train pictures in about their own shape instead of cutting all to one. Switch it off only for "
        "pictures of one shape.",
    )
    min_bucket_reso: int = option(256, ge=8, unit="px", help="Shortest side of a bucket.")
    max_bucket_reso: int = option(1024, ge=8, unit="px", help="Longest side of a bucket.")
    bucket_reso_steps: int = option(64, ge=1, unit="px", level="expert", help="Bucket sides are multiples of this.")
    bucket_no_upscale: bool = option(False, help="Never enlarge a picture: small ones train at their own size.")
    resize_interpolation: (
        Literal["lanczos", "nearest", "bilinear", "linear", "bicubic", "cubic", "area", "box"] | None
    ) = option(
        None,
        level="expert",
        help="How pictures are resized. Unset: Lanczos for JPEG files, which are then decoded at a reduced scale and several "
        "times faster; for others area when both sides shrink, else Lanczos.",
    )
    random_crop: bool = option(
        False,
        level="expert",
        help="Cut the overhang at a random place instead of equally on both sides. Not with cached latents.",
    )
    flip_aug: bool = option(
        False,
        label="Flip at random",
        help="Mirror pictures at random. Not for faces with a parting, text or anything with a left and a right.",
    )
    color_aug: bool = option(
        False, label="Vary colours", level="expert", help="Vary hue and brightness a little. Not with cached latents."
    )
    alpha_mask: bool = option(
        False,
        level="expert",
        help="Train only where the picture is opaque: transparency is used as a mask of the loss.",
    )
    masked_loss: bool = option(
        False,
        level="expert",
        help="Train most where the mask is bright and not where it is black. The masks are the guiding pictures.",
    )
    face_crop_aug_range: str | None = option(
        None,
        label="Cut around faces",
        level="expert",
        help="Cut pictures around the face at a random size between these two, such as 1.0,3.0 times the face. File names "
        "must hold the place of the face, as the face tool writes them.",
    )
    skip_image_resolution: str | None = option(
        None,
        label="Leave out small pictures",
        level="expert",
        unit="px",
        help="Leave out pictures whose area is at most that of this size: one number for a square, or width,height.",
    )


class Caching(Options):
    title: ClassVar[str] = "Caching"
    order: ClassVar[int] = 100

    cache_latents: bool = option(
        True,
        label="Cache latents",
        help="Encode every picture once at the start instead of in each step. Much faster; not with random crop "
        "or colour variation.",
    )
    cache_latents_to_disk: bool = option(
        False,
        label="… on disk",
        help="Keep the encoded pictures in a hidden folder beside the originals, so that the next run starts at once. "
        "Turns the cache on.",
    )
    compress_cache: bool = option(
        False,
        label="Compress the cache",
        level="expert",
        help="Compress what is cached on disk: about a fifth smaller, and a few times slower to read.",
    )
    vae_batch_size: int = option(
        1,
        ge=1,
        level="expert",
        unit="pictures",
        help="Pictures encoded at a time. More is faster and needs more memory.",
    )
    skip_cache_check: bool = option(
        False,
        level="expert",
        formerly=("skip_latents_validity_check",),
        help="Take the cache on disk as it is: neither look whether pictures were edited since, nor verify what a killed run "
        "has left. For slow drives; elsewhere the check takes no time.",
    )
    cache_info: bool = option(
        False,
        level="expert",
        label="Trust the scan index",
        help="Do not look at the pictures and captions of a folder again while no file in it was added, removed or renamed. "
        "For folders on slow drives; edited captions are not noticed.",
    )
    cache_text_encoder_outputs: bool = option(
        False,
        label="Cache captions",
        help="Encode every caption once at the start and then drop the text encoders. Saves much memory and time; captions "
        "can then be left out as a whole but not in parts, not be shuffled, and the encoders not be trained.",
    )
    cache_text_encoder_outputs_to_disk: bool = option(
        False,
        label="… on disk",
        help="Keep the encoded captions in a hidden folder beside the pictures, so that the next run starts at once. Turns the "
        "cache on.",
    )
    text_encoder_batch_size: int | None = option(
        None,
        ge=1,
        level="expert",
        unit="captions",
        help="Captions encoded at a time; unset: as many as the batch size.",
    )


class DatasetOptions(DatasetSource, Captions, Images, Caching, Validation):
    """All that decides what a batch holds."""
