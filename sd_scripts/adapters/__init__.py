"""Adapters: LoRA and its kin, under the names and in the files that the field's other programs read.

`kinds` and `settings` need no torch, so that checks and forms start fast; `network.AdapterNetwork` is what is trained.
A further kind is one module with a subclass of `base.AdapterModule` and one row in `kinds.KINDS`.
"""
