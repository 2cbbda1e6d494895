"""Tokenizers that work offline: their vocabularies are shipped with the program."""
