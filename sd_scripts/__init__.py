"""Trainers for image diffusion models: option schema, models, adapters, data, training."""
