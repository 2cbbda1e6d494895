"""The browser interface. It reads the option schema, starts trainers, watches run folders, never imports torch."""
