#!/bin/sh
# Finds a fitting Python and gives it kohya_gui/install.py: start.sh TASK [arguments]. gui.sh and test.sh call it.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P) || exit 1
venv=${KOHYA_VENV:-"$here/../venv"}
fits='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'

first_that_runs() { # prints the first Python that runs the given code without an error
    for python in "$KOHYA_PYTHON" python3 python python3.13 python3.12 python3.11 python3.10; do
        if [ -n "$python" ] && "$python" -I -c "$1" >/dev/null 2>&1; then
            printf '%s\n' "$python"
            return
        fi
    done
}

if "$venv/bin/python" -I -S -c '' 2>/dev/null; then
    exec "$venv/bin/python" -I "$here/install.py" "$@"
fi
python=$(first_that_runs "import ensurepip, venv; $fits")
if [ -z "$python" ] && command -v uv >/dev/null 2>&1; then
    uv venv --seed --clear --python '>=3.10,<3.14' "$venv" || exit 1
    exec "$venv/bin/python" -I "$here/install.py" "$@"
fi
python=${python:-$(first_that_runs "$fits")} # lacks venv: install.py says which package brings it
if [ -z "$python" ]; then
    cat >&2 <<'EOF'
error: no Python 3.10, 3.11, 3.12 or 3.13 was found. Install one and start again:
  Debian, Ubuntu:  sudo apt install python3 python3-venv
  Fedora:          sudo dnf install python3.13
  macOS:           brew install python@3.13
  any system:      install uv; it brings a Python by itself
A Python in another place: KOHYA_PYTHON=/path/to/python3 ./gui.sh
EOF
    exit 1
fi
exec "$python" -I "$here/install.py" "$@"
