"""Cases of `rules.output`; see `test_rules_cases`."""

from sd_scripts.options.rules import output

SD = ("sd1", "sd2")

CASES = [
    (output.output_folder_is_given, "adapter", SD, {}, ("output_dir", "error")),
    (output.output_folder_is_given, "adapter", SD, {"output_dir": "x"}, None),
    (output.folders_can_be_written, "adapter", SD, {"output_dir": "{file}/x"}, ("output_dir", "error")),
    (output.folders_can_be_written, "adapter", SD, {"logging_dir": "{file}/x"}, ("logging_dir", "error")),
    (output.folders_can_be_written, "adapter", SD, {"output_dir": "{folder}/x", "run_dir": "{folder}/y"}, None),
    *[
        (output.name_is_a_file_name, "adapter", SD, {"output_name": name}, ("output_name", "error"))
        for name in ("a/b", "a\\b", "..", "a:b")
    ],
    (output.name_is_a_file_name, "adapter", SD, {"output_name": "my [lora] v1.5"}, None),
    (
        output.finished_file_is_new, "adapter", SD, {"output_dir": "{state}", "output_name": "old"},
        ("output_name", "note"),
    ),
    (output.finished_file_is_new, "adapter", SD, {"output_dir": "{state}", "output_name": "new"}, None),
    (
        output.finished_file_is_new, "adapter", SD,
        {"output_dir": "{state}", "output_name": "old", "resume": "{state}"}, None,
    ),
    (
        output.ratio_decides_over_epochs, "adapter", SD, {"save_n_epoch_ratio": 2, "save_every_n_epochs": 1},
        ("save_every_n_epochs", "note"),
    ),
    (
        output.ratio_decides_over_epochs, "adapter", SD, {"save_n_epoch_ratio": 0, "save_every_n_epochs": 1}, None,
    ),
    (output.saved_states_have_files, "adapter", SD, {"save_state": True}, ("save_state", "note")),
    (
        output.saved_states_have_files, "adapter", SD,
        {"save_state": True, "save_every_n_steps": 5, "save_state_on_train_end": True},
        ("save_state_on_train_end", "note"),
    ),
    (output.saved_states_have_files, "adapter", SD, {"save_state": True, "save_every_n_steps": 5}, None),
    (output.resume_folder_is_a_state, "adapter", SD, {"resume": "gone-state"}, ("resume", "error")),
    (output.resume_folder_is_a_state, "adapter", SD, {"resume": "{folder}"}, ("resume", "error")),
    (output.resume_folder_is_a_state, "adapter", SD, {"resume": "{state}"}, None),
    (
        output.resume_folder_is_a_state, "adapter", SD, {"resume": "me/repo/state:main", "resume_from_huggingface": True},
        None,
    ),
    (output.file_format_can_be_written, "full", "flux", {"save_model_as": "diffusers"}, ("save_model_as", "error")),
    (output.file_format_can_be_written, "full", "flux", {"save_model_as": "ckpt"}, None),
    (
        output.file_format_is_chosen_once, "full", SD, {"use_safetensors": True, "save_model_as": "ckpt"},
        ("use_safetensors", "note"),
    ),
    (output.file_format_is_chosen_once, "full", SD, {"use_safetensors": True}, None),
    (output.run_folder_is_fresh, "adapter", SD, {"run_dir": "{state}"}, ("run_dir", "error")),
    (output.run_folder_is_fresh, "adapter", SD, {"run_dir": "{folder}"}, None),
    (output.trackers_are_installed, "adapter", SD, {}, ("log_with", "error")),
    (output.trackers_are_installed, "adapter", SD, {"log_with": "none"}, None),
    (
        output.tracker_settings_are_read, "adapter", SD, {"log_tracker_config": "gone"}, ("log_tracker_config", "error"),
    ),
    (
        output.tracker_settings_are_read, "adapter", SD, {"log_tracker_config": "{file}", "wandb_run_name": "x"},
        ("wandb_run_name", "note"),
    ),
    (output.tracker_settings_are_read, "adapter", SD, {"log_tracker_config": "{file}"}, None),
    (
        output.secrets_are_better_kept_elsewhere, "adapter", SD, {"huggingface_token": "hf_x"},
        ("huggingface_token", "warning"),
    ),
    (
        output.secrets_are_better_kept_elsewhere, "adapter", SD, {"wandb_api_key": "x"}, ("wandb_api_key", "warning"),
    ),
    (output.secrets_are_better_kept_elsewhere, "adapter", SD, {"huggingface_repo_id": "a/b"}, None),
    (
        output.uploads_are_public, "adapter", SD,
        {"huggingface_repo_id": "a/b", "huggingface_repo_visibility": "public"},
        ("huggingface_repo_visibility", "note"),
    ),
    (output.uploads_are_public, "adapter", SD, {"huggingface_repo_id": "a/b"}, None),
    (output.samples_are_drawn, "adapter", SD, {"sample_every_n_steps": 5}, ("sample_prompts", "error")),
    (
        output.samples_are_drawn, "adapter", SD, {"sample_prompts": "gone.txt", "sample_at_first": True},
        ("sample_prompts", "error"),
    ),
    (output.samples_are_drawn, "adapter", SD, {"sample_prompts": "{file}"}, ("sample_prompts", "note")),
    (
        output.samples_are_drawn, "adapter", SD,
        {"sample_prompts": "{file}", "sample_every_n_steps": 5, "sample_every_n_epochs": 1},
        ("sample_every_n_steps", "warning"),
    ),
    (output.samples_are_drawn, "adapter", SD, {"sample_prompts": "{file}", "sample_every_n_epochs": 1}, None),
    (output.samples_are_drawn, "adapter", SD, {"sample_every_n_epochs": 0, "sample_every_n_steps": -1}, None),
    (output.thumbnail_exists, "adapter", SD, {"metadata_thumbnail": "gone.png"}, ("metadata_thumbnail", "error")),
    (output.thumbnail_exists, "adapter", SD, {"metadata_thumbnail": "data:image/png;base64,x"}, None),
    (output.pictures_remain_to_train, "adapter", SD, {"validation_split": 1}, ("validation_split", "error")),
    (output.pictures_remain_to_train, "adapter", SD, {"validation_split": 0.1}, None),
]  # fmt: skip
