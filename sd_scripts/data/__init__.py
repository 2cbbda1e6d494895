"""Pictures and captions: found, planned into buckets, cached as latents, and handed to the loop in batches."""
