"""What is trained and how it is saved: an adapter, the whole model, … A method knows no architecture by name."""
