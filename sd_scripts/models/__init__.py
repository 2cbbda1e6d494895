"""One file an architecture; reading and writing its checkpoints; nothing else in the program knows layer names."""
