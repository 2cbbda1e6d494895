"""The browser interface. It reads the option schema, starts trainers and watches run folders; it never imports torch."""
