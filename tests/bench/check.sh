#!/bin/sh
# check.sh: the benchmark's scripts without a GPU: results_check.py, and check.py, which needs NumPy; exit code 77 where there is none.
set -u
if command -v "${PYTHON:-python3}" >/dev/null; then
    "${PYTHON:-python3}" "$(dirname "$0")/results_check.py" || exit 1 # it needs no NumPy
fi
if ! "${PYTHON:-python3}" -c 'import numpy' 2>/dev/null; then
    echo "tests/bench/check.sh: skipped: ${PYTHON:-python3} with numpy is not here"
    exit 77
fi
exec "${PYTHON:-python3}" "$(dirname "$0")/check.py" --library "${LATHE_BUILD:-build}/liblathe.so"
