"""The option schema: every option is declared once, in the group it belongs to, and everything else is made from that.

The command line, TOML files, GUI forms, documentation and checks read these declarations. Nothing here imports torch.
"""
