#!/bin/sh
# python.sh: the tests of the Python package on the host device, from the source tree and with the shared library of this build;
# nothing is installed. LATHE_BUILD is the build folder, LATHE_PYTHON the interpreter: by default that of python_env.sh, where this
# made one, else python3. Exit code 77: there is no Python with NumPy and pytest; tests of torch, JAX and pictures are skipped,
# with the reason, where those are missing. The last lines say how many of each ran.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "${LATHE_BUILD:-build}" && pwd) || exit 1
python=${LATHE_PYTHON:-$(sh tests/python_env.sh --known 2>/dev/null || echo python3)}

skip() {
    echo "python: skipped: $*"
    exit 77
}

[ -e "$build/liblathe.so" ] || skip 'the shared library is not built (LATHE_SHARED)'
command -v "$python" >/dev/null || skip "there is no $python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "$python is older than 3.10"
for module in numpy pytest; do
    "$python" -c "import $module" 2>/dev/null || skip "$python has no $module (pip install $module)"
done
export LATHE_LIBRARY="$build/liblathe.so" PYTHONPATH="$PWD/runtime/python:$PWD/runtime/python/tests" PYTHONDONTWRITEBYTECODE=1
export LATHE_TOOL="$build/lathe" CUDA_VISIBLE_DEVICES=
export OMP_NUM_THREADS=1 # tensors are tiny: where other tests run beside, threads of torch wait longer for each other than they work
XDG_CACHE_HOME=$(mktemp -d)
export XDG_CACHE_HOME
trap 'rm -rf "$XDG_CACHE_HOME"' EXIT
"$python" -m pytest -p no:cacheprovider -rs runtime/python/tests "$@"
