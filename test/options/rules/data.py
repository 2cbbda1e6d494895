"""Cases of `rules.data`; see `test_rules_cases`."""

from sd_scripts.options.rules import data

SD = ("sd1", "sd2")

CASES = [
    (data.pictures_are_given, "adapter", SD, {}, ("train_data_dir", "error")),
    (data.pictures_are_given, "adapter", SD, {"train_data_dir": "x"}, None),
    (data.pictures_are_given, "adapter", SD, {"dataset_config": "x"}, None),
    (data.pictures_are_given, "full", SD, {"in_json": "x"}, None),
    (data.guiding_pictures_are_given, "controlnet", SD, {}, ("conditioning_data_dir", "error")),
    (data.guiding_pictures_are_given, "lllite", "sdxl", {}, ("conditioning_data_dir", "error")),
    (data.guiding_pictures_are_given, "controlnet", SD, {"conditioning_data_dir": "x"}, None),
    (data.guiding_pictures_are_given, "controlnet", SD, {"dataset_config": "x"}, None),
    (
        data.guiding_pictures_are_given, "adapter", SD, {"conditioning_data_dir": "x"},
        ("conditioning_data_dir", "warning"),
    ),
    (data.guiding_pictures_are_given, "adapter", SD, {"conditioning_data_dir": "x", "masked_loss": True}, None),
    (data.guiding_pictures_are_given, "adapter", SD, {}, None),
    (
        data.picture_folders_exist, "controlnet", SD, {"conditioning_data_dir": "gone"},
        ("conditioning_data_dir", "error"),
    ),
    (data.picture_folders_exist, "controlnet", SD, {"conditioning_data_dir": "{folder}"}, None),
    *[
        (data.dataset_file_replaces_folders, "adapter", SD, {"dataset_config": "x", name: "y"}, (name, "warning"))
        for name in ("train_data_dir", "reg_data_dir", "in_json", "conditioning_data_dir")
    ],
    (data.dataset_file_replaces_folders, "adapter", SD, {"train_data_dir": "y", "reg_data_dir": "z"}, None),
    (data.metadata_file_fits, "full", SD, {"in_json": "gone"}, ("in_json", "error")),
    (data.metadata_file_fits, "full", SD, {"in_json": "{file}", "reg_data_dir": "x"}, ("reg_data_dir", "warning")),
    (data.metadata_file_fits, "full", SD, {"in_json": "{file}", "color_aug": True}, ("color_aug", "warning")),
    (data.metadata_file_fits, "full", SD, {"in_json": "{file}", "random_crop": True}, ("random_crop", "warning")),
    (data.metadata_file_fits, "full", SD, {"in_json": "{file}"}, None),
    (data.metadata_file_fits, "full", SD, {"color_aug": True}, None),
    (data.guided_pictures_stay_together, "controlnet", SD, {"random_crop": True}, ("random_crop", "error")),
    (data.guided_pictures_stay_together, "lllite", "sdxl", {"alpha_mask": True}, ("alpha_mask", "warning")),
    (data.guided_pictures_stay_together, "controlnet", SD, {"reg_data_dir": "x"}, ("reg_data_dir", "warning")),
    (data.guided_pictures_stay_together, "controlnet", SD, {}, None),
    (data.guided_pictures_stay_together, "adapter", SD, {"random_crop": True, "alpha_mask": True}, None),
    (data.masks_are_given, "adapter", SD, {"masked_loss": True}, ("masked_loss", "error")),
    *[
        (data.masks_are_given, "adapter", SD, {"masked_loss": True, name: "x"}, None)
        for name in ("dataset_config", "conditioning_data_dir", "dataset_class")
    ],
    (data.own_dataset_class_is_alone, "adapter", SD, {"dataset_class": "a.B", "in_json": "x"}, ("in_json", "warning")),
    (data.own_dataset_class_is_alone, "adapter", SD, {"dataset_class": "a.B"}, None),
    (data.own_dataset_class_is_alone, "adapter", SD, {"in_json": "x"}, None),
    (data.cached_latents_do_not_change, "adapter", SD, {"random_crop": True}, ("random_crop", "error")),
    (
        data.cached_latents_do_not_change, "adapter", SD,
        {"cache_latents": False, "cache_latents_to_disk": True, "color_aug": True}, ("color_aug", "error"),
    ),
    (
        data.cached_latents_do_not_change, "adapter", SD,
        {"cache_latents": False, "random_crop": True, "color_aug": True}, None,
    ),
    (data.cached_latents_do_not_change, "adapter", SD, {"flip_aug": True}, None),
    (
        data.cache_on_disk_is_a_cache, "adapter", SD, {"cache_latents": False, "cache_latents_to_disk": True},
        ("cache_latents", "note"),
    ),
    (
        data.cache_on_disk_is_a_cache, "adapter", "flux",
        {"cache_text_encoder_outputs": False, "cache_text_encoder_outputs_to_disk": True},
        ("cache_text_encoder_outputs", "note"),
    ),
    (data.cache_on_disk_is_a_cache, "adapter", SD, {"cache_latents_to_disk": True}, None),
    (data.sizes_fit_the_model, "adapter", "sd1", {"bucket_reso_steps": 12}, ("bucket_reso_steps", "error")),
    (data.sizes_fit_the_model, "adapter", "sdxl", {"bucket_reso_steps": 4}, ("bucket_reso_steps", "error")),
    (data.sizes_fit_the_model, "adapter", "flux", {"bucket_reso_steps": 8}, ("bucket_reso_steps", "error")),
    (data.sizes_fit_the_model, "adapter", "hunyuan_image", {"bucket_reso_steps": 16}, ("bucket_reso_steps", "error")),
    (data.sizes_fit_the_model, "adapter", "flux", {"resolution": "1000"}, ("resolution", "error")),
    (data.sizes_fit_the_model, "adapter", "sd1", {"resolution": "large"}, ("resolution", "error")),
    (data.sizes_fit_the_model, "adapter", "sd1", {"resolution": "1000,512", "bucket_reso_steps": 8}, None),
    (data.sizes_fit_the_model, "adapter", "flux", {"bucket_reso_steps": 8, "enable_bucket": False}, None),
    (data.sizes_fit_the_model, "adapter", "flux", {"bucket_reso_steps": 8, "dataset_config": "x"}, None),
    (data.sizes_fit_the_model, "adapter", "hunyuan_image", {"bucket_reso_steps": 32, "resolution": "2048"}, None),
    (data.other_sizes_are_sizes, "adapter", SD, {"skip_image_resolution": "x"}, ("skip_image_resolution", "error")),
    (data.other_sizes_are_sizes, "adapter", SD, {"skip_image_resolution": "256,300"}, None),
    *[
        (data.face_range_is_a_range, "adapter", SD, {"face_crop_aug_range": text}, ("face_crop_aug_range", "error"))
        for text in ("2", "3.0,1.0", "a,b", "0,1")
    ],
    *[
        (data.face_range_is_a_range, "adapter", SD, {"face_crop_aug_range": text}, None)
        for text in ("1.0,3.0", "1, 1", "(1.5, 2.5)")
    ],
    (
        data.workers_that_persist, "adapter", SD,
        {"max_data_loader_n_workers": 0, "persistent_data_loader_workers": True},
        ("persistent_data_loader_workers", "note"),
    ),
    (data.workers_that_persist, "adapter", SD, {"max_data_loader_n_workers": 0}, None),
    (data.workers_that_persist, "adapter", SD, {"persistent_data_loader_workers": True}, None),
]  # fmt: skip
