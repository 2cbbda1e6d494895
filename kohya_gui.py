"""Start the browser interface: `python kohya_gui.py [--listen 127.0.0.1] [--server_port 7860] …`."""

import sys

from kohya_gui.cli import main

if __name__ == "__main__":
    sys.exit(main())
