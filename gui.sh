#!/bin/sh
# Installs what is missing and starts the GUI; every flag goes to it: ./gui.sh --listen 0.0.0.0 --server_port 7860
exec sh "$(dirname -- "$0")/kohya_gui/start.sh" gui "$@"
