"""How tensors are called in checkpoint files and in the libraries' modules: tables used for reading and for writing."""
