"""Commands besides the trainers."""
