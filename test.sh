#!/bin/sh
# Installs what the tests need and runs them; every flag goes to pytest: ./test.sh -m "not slow"
exec sh "$(dirname -- "$0")/kohya_gui/start.sh" test "$@"
