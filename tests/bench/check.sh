#!/bin/sh
# check.sh: the benchmark's scripts without a GPU (check.py). Needs Python 3 with NumPy; exit code 77 where there is none.
set -u
if ! "${PYTHON:-python3}" -c 'import numpy' 2>/dev/null; then
    echo "tests/bench/check.sh: skipped: ${PYTHON:-python3} with numpy is not here"
    exit 77
fi
exec "${PYTHON:-python3}" "$(dirname "$0")/check.py" --library "${LATHE_BUILD:-build}/liblathe.so"
