"""Training: the loop, what it minimises, and what it writes. events and run_folder import no torch: the GUI reads them."""
