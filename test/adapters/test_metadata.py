"""Metadata of network files: which keys, in which text forms, and that no path or secret gets in."""

import base64
import json
from dataclasses import replace

import pytest

from sd_scripts.adapters.metadata import (
    DatasetSummary,
    DataSummary,
    ModelFile,
    RunSummary,
    SubsetSummary,
    network_metadata,
)
from sd_scripts.adapters.modelspec import modelspec
from sd_scripts.errors import UserError
from sd_scripts.models.families import all_families
from sd_scripts.models.hashes import FileHashes
from sd_scripts.options.recipes import NetworkTraining

BUCKETS = {"buckets": {"0": {"resolution": [512, 512], "count": 30}}, "mean_img_ar_error": 0.25}
SUBSETS = (
    SubsetSummary(img_count=3, num_repeats=10, image_dir="/home/anna/pictures/10_cat", class_tokens="cat"),
    SubsetSummary(img_count=2, num_repeats=1, image_dir="C:\\Users\\anna\\1_cat", class_tokens="cat", is_reg=True),
)
DATASET = DatasetSummary(
    batch_size_per_device=2, num_train_images=30, num_reg_images=2, resolution=(512, 512), enable_bucket=True,
    min_bucket_reso=256, max_bucket_reso=1024, tag_frequency={"/home/anna/pictures/10_cat": {"cat": 3, "sofa": 1}},
    bucket_info=BUCKETS, subsets=SUBSETS,
)  # fmt: skip
DATA = DataSummary((DATASET,), is_from_file=False, num_batches_per_epoch=16)


def identity(family, predicts_v=False):
    return all_families()[family].identity(predicts_v, {})


RUN = RunSummary(
    session_id=123456, seed=42, started_at=1700000000.5, finished_at=1700000100.25, epoch=2, step=32, num_epochs=4,
    max_train_steps=64, optimizer="torch.optim.adamw.AdamW(weight_decay=0.1)", lr_scheduler="cosine",
    model=ModelFile("base.safetensors", "0123abcd", "f" * 64), identity=identity("sd1"), num_processes=2,
    network_dim=8, network_alpha=4.0,
)  # fmt: skip
MINIMUM = {"ss_network_module", "ss_network_dim", "ss_network_alpha", "ss_v2", "ss_base_model_version"}


def options(**given) -> NetworkTraining:
    defaults = {"output_name": "my cat", "network_dim": 8, "network_alpha": 4.0, "learning_rate": 1e-4}
    return NetworkTraining(**(defaults | given))


def test_text_forms():
    cfg = options(text_encoder_lr=[5e-5], gradient_accumulation_steps=3, shuffle_caption=True, noise_offset=0.05)
    metadata = network_metadata(cfg, RUN, DATA)
    assert all(isinstance(value, str) for value in metadata.values())
    expected = {
        "ss_session_id": "123456", "ss_training_started_at": "1700000000.5", "ss_training_finished_at": "1700000100.25",
        "ss_output_name": "my cat", "ss_learning_rate": "0.0001", "ss_unet_lr": "None", "ss_text_encoder_lr": "[5e-05]",
        "ss_num_train_images": "30", "ss_num_reg_images": "2", "ss_num_validation_images": "0",
        "ss_num_batches_per_epoch": "16", "ss_num_epochs": "4", "ss_epoch": "2", "ss_steps": "32",
        "ss_max_train_steps": "64", "ss_gradient_checkpointing": "False", "ss_gradient_accumulation_steps": "3",
        "ss_lr_warmup_steps": "0", "ss_lr_scheduler": "cosine",
        "ss_optimizer": "torch.optim.adamw.AdamW(weight_decay=0.1)",
        "ss_network_module": "networks.lora", "ss_network_dim": "8", "ss_network_alpha": "4.0",
        "ss_network_dropout": "None", "ss_v2": "False", "ss_base_model_version": "sd_v1", "ss_seed": "42",
        "ss_clip_skip": "None", "ss_noise_offset": "0.05", "ss_min_snr_gamma": "None",
        "ss_sd_scripts_commit_hash": "(unknown)", "ss_sd_model_name": "base.safetensors",
        "ss_sd_model_hash": "0123abcd", "ss_new_sd_model_hash": "f" * 64, "ss_debiased_estimation": "False",
        "ss_batch_size_per_device": "2", "ss_total_batch_size": "12", "ss_resolution": "(512, 512)",
        "ss_enable_bucket": "True", "ss_min_bucket_reso": "256", "ss_max_bucket_reso": "1024",
        "ss_bucket_no_upscale": "False", "ss_shuffle_caption": "True", "ss_keep_tokens": "0", "ss_flip_aug": "False",
        "ss_mixed_precision": "no", "ss_prior_loss_weight": "1.0", "ss_lowram": "False",
        "ss_face_crop_aug_range": "None",
    }  # fmt: skip
    assert {key: metadata.get(key) for key in expected} == expected
    assert json.loads(metadata["ss_dataset_dirs"]) == {"10_cat": {"n_repeats": 10, "img_count": 3}}
    assert json.loads(metadata["ss_reg_dataset_dirs"]) == {"1_cat": {"n_repeats": 1, "img_count": 2}}
    assert json.loads(metadata["ss_tag_frequency"]) == {"10_cat": {"cat": 3, "sofa": 1}}
    assert json.loads(metadata["ss_bucket_info"]) == BUCKETS
    assert not {"ss_network_args", "ss_datasets", "ss_vae_name"} & metadata.keys()


def test_every_key_of_the_field_is_written():
    listed = """
        session_id training_started_at training_finished_at output_name learning_rate unet_lr text_encoder_lr
        num_train_images num_validation_images num_reg_images num_batches_per_epoch num_epochs epoch steps
        gradient_checkpointing gradient_accumulation_steps max_train_steps lr_warmup_steps lr_scheduler network_module
        network_dim network_alpha network_dropout v2 base_model_version mixed_precision full_fp16 fp8_base fp8_base_unet
        clip_skip max_token_length cache_latents seed lowram noise_offset noise_offset_random_strength
        adaptive_noise_scale multires_noise_iterations multires_noise_discount ip_noise_gamma
        ip_noise_gamma_random_strength zero_terminal_snr min_snr_gamma debiased_estimation loss_type huber_schedule
        huber_scale huber_c prior_loss_weight scale_weight_norms max_grad_norm caption_dropout_rate
        caption_dropout_every_n_epochs caption_tag_dropout_rate face_crop_aug_range resize_interpolation
        validation_seed validation_split max_validation_steps validate_every_n_epochs validate_every_n_steps
        training_comment sd_scripts_commit_hash optimizer sd_model_name sd_model_hash new_sd_model_hash
        batch_size_per_device total_batch_size resolution color_aug flip_aug random_crop shuffle_caption enable_bucket
        bucket_no_upscale min_bucket_reso max_bucket_reso keep_tokens dataset_dirs reg_dataset_dirs tag_frequency
        bucket_info
    """
    found = {key.removeprefix("ss_") for key in network_metadata(options(), RUN, DATA) if key.startswith("ss_")}
    assert found == set(listed.split())


@pytest.mark.parametrize("dropout", [None, 0.1])
def test_network_arguments_carry_the_dropout(dropout):
    metadata = network_metadata(options(network_args=["conv_dim=4", "x=a=b"], network_dropout=dropout), RUN, DATA)
    assert metadata["ss_network_args"] == json.dumps({"conv_dim": "4", "x": "a=b", "dropout": dropout})


def test_unset_rank_reads_none():
    assert network_metadata(options(), replace(RUN, network_dim=None), DATA)["ss_network_dim"] == "None"


def test_minimum():
    metadata = network_metadata(options(no_metadata=True), RUN, DATA)
    assert {key for key in metadata if key.startswith("ss_")} == MINIMUM
    assert metadata["modelspec.title"] == "my cat"
    metadata = network_metadata(options(no_metadata=True, network_args=["conv_dim=4"]), RUN, DATA)
    assert {key for key in metadata if key.startswith("ss_")} == MINIMUM | {"ss_network_args"}


def test_a_dataset_file_is_described_dataset_by_dataset():
    tuned = replace(
        DATASET, is_dreambooth=False, bucket_info=None, tag_frequency={"meta.json": {"cat": 2}},
        subsets=(SubsetSummary(img_count=2, num_repeats=3, metadata_file="/home/anna/meta.json"),),
    )  # fmt: skip
    metadata = network_metadata(options(), RUN, DataSummary((DATASET, DATASET, tuned), True, 16))
    assert not {"ss_resolution", "ss_bucket_info", "ss_reg_dataset_dirs", "ss_total_batch_size"} & metadata.keys()
    assert metadata["ss_num_train_images"] == "90"
    assert json.loads(metadata["ss_tag_frequency"]) == {"10_cat": {"cat": 6, "sofa": 2}, "meta.json": {"cat": 2}}
    assert list(json.loads(metadata["ss_dataset_dirs"])) == ["10_cat", "10_cat (2)", "meta.json"]
    first, _, last = json.loads(metadata["ss_datasets"])
    assert set(first) == {
        "is_dreambooth", "batch_size_per_device", "num_train_images", "num_reg_images", "resolution", "enable_bucket",
        "min_bucket_reso", "max_bucket_reso", "tag_frequency", "bucket_info", "resize_interpolation", "subsets",
    }  # fmt: skip
    assert first["resolution"] == [512, 512] and last["bucket_info"] is None
    assert [s["image_dir"] for s in first["subsets"]] == ["10_cat", "1_cat"]
    assert [s["is_reg"] for s in first["subsets"]] == [False, True]
    shared = {
        "img_count", "num_repeats", "color_aug", "flip_aug", "random_crop", "shuffle_caption", "keep_tokens",
        "keep_tokens_separator", "secondary_separator", "enable_wildcard", "caption_prefix", "caption_suffix",
        "resize_interpolation",
    }  # fmt: skip
    assert set(first["subsets"][0]) == shared | {"image_dir", "class_tokens", "is_reg"}
    assert set(last["subsets"][0]) == shared | {"metadata_file"}
    assert last["subsets"][0]["metadata_file"] == "meta.json"


def test_buckets_off_read_null():
    data = replace(DATA, datasets=(replace(DATASET, bucket_info=None, enable_bucket=False),))
    metadata = network_metadata(options(), RUN, data)
    assert (metadata["ss_bucket_info"], metadata["ss_enable_bucket"]) == ("null", "False")


def test_no_path_gets_in(tmp_path):
    folder = tmp_path / "private place"
    folder.mkdir()
    (folder / "base.safetensors").write_bytes(b"x" * 100)
    paths = {
        name: str(folder / name)
        for name in (
            "train_data_dir",
            "output_dir",
            "logging_dir",
            "resume",
            "network_weights",
            "sample_prompts",
            "vae",
        )
    }
    cfg = options(**paths, pretrained_model_name_or_path=str(folder / "base.safetensors"))
    data = replace(DATA, datasets=(replace(DATASET, subsets=(replace(SUBSETS[0], image_dir=str(folder / "10_cat")),)),))
    for is_from_file in (False, True):
        model, vae = (ModelFile.of(str(folder / name)) for name in ("base.safetensors", "gone.pt"))
        run = replace(RUN, model=model, vae=vae)
        metadata = network_metadata(cfg, run, replace(data, is_from_file=is_from_file))
        text = json.dumps(metadata)
        assert "private place" not in text and "anna" not in text and str(tmp_path) not in text
        assert metadata["ss_sd_model_name"] == "base.safetensors" and metadata["ss_vae_name"] == "gone.pt"


def test_model_files(tmp_path):
    path = tmp_path / "base.ckpt"
    path.write_bytes(b"x")
    assert ModelFile.of(str(path), FileHashes("ab" * 32, "01234567")) == ModelFile("base.ckpt", "01234567", "ab" * 32)
    assert ModelFile.of(str(path)) == ModelFile("base.ckpt")
    assert ModelFile.of(str(tmp_path)) == ModelFile(tmp_path.name, "IsADirectory", "IsADirectory")
    assert ModelFile.of("someone/some-model") == ModelFile("someone/some-model")
    assert ModelFile.of("D:\\models\\gone.ckpt") == ModelFile("gone.ckpt")


@pytest.mark.parametrize(
    ("key", "architecture", "resolution", "prediction", "version"),
    [
        (("sd1", False), "stable-diffusion-v1/lora", "512x512", "epsilon", "sd_v1"),
        (("sd1", True), "stable-diffusion-v1/lora", "512x512", "v", "sd_v1_v"),
        (("sd2", False), "stable-diffusion-v2-512/lora", "512x512", "epsilon", "sd_v2"),
        (("sd2", True), "stable-diffusion-v2-768-v/lora", "768x768", "v", "sd_v2_v"),
    ],
)
def test_modelspec(key, architecture, resolution, prediction, version):
    run = replace(RUN, identity=identity(*key), commit="abc")
    metadata = network_metadata(options(), run, DataSummary((), False, 1))
    spec = {k.removeprefix("modelspec."): v for k, v in metadata.items() if k.startswith("modelspec.")}
    assert spec.pop("date").startswith("2023-11-1") and "+" not in metadata["modelspec.date"]
    assert spec == {
        "sai_model_spec": "1.0.1", "architecture": architecture, "implementation": "diffusers", "title": "my cat",
        "resolution": resolution, "prediction_type": prediction, "implementation_version": "sd-scripts/abc",
    }  # fmt: skip
    assert metadata["ss_base_model_version"] == version and metadata["ss_v2"] == str(key[0] == "sd2")


def test_modelspec_of_what_is_given(tmp_path):
    cfg = options(
        metadata_title="T", metadata_author="A", metadata_license="L", metadata_tags="a,b",
        metadata_trigger_phrase="cat",
        metadata_usage_hint="U", metadata_description="D", metadata_merged_from="M", min_timestep=100, clip_skip=2,
        metadata_preprocessor="canny", metadata_is_negative_embedding="true",
    )  # fmt: skip
    spec = modelspec(cfg, RUN.identity, "lora", made_at=0, resolution=(640, 512), version="x")
    given = ("title", "author", "license", "tags", "trigger_phrase", "usage_hint", "description", "merged_from")
    assert [spec[f"modelspec.{name}"] for name in given] == ["T", "A", "L", "a,b", "cat", "U", "D", "M"]
    assert (spec["modelspec.preprocessor"], spec["modelspec.is_negative_embedding"]) == ("canny", "true")
    assert spec["modelspec.timestep_range"] == "100,1000" and spec["modelspec.encoder_layer"] == "2"
    assert spec["modelspec.resolution"] == "640x512"


def test_titles_and_thumbnails(tmp_path):
    class Given:
        metadata_thumbnail = str(tmp_path / "a.png")

    with pytest.raises(UserError, match="metadata_thumbnail"):
        modelspec(Given, RUN.identity, "checkpoint", made_at=7.9, resolution=None, version="x")
    (tmp_path / "a.png").write_bytes(b"png")
    spec = modelspec(Given, RUN.identity, "checkpoint", made_at=7.9, resolution=None, version="x")
    assert spec["modelspec.thumbnail"] == "data:image/png;base64," + base64.b64encode(b"png").decode()
    assert spec["modelspec.title"] == "Checkpoint@7" and spec["modelspec.architecture"] == "stable-diffusion-v1"
    assert spec["modelspec.implementation"] == "https://github.com/Stability-AI/generative-models"
