#!/bin/sh
# python_env.sh: prints the path of a Python interpreter that has what tests/python.txt lists. It is made once, in a
# virtual environment outside of the tree, ${XDG_CACHE_HOME:-~/.cache}/lathe-tests/python/KEY: KEY is of that list and
# of the version of python3. About 5 GB and a minute or two. --known: only where it was made before. Exit code 77,
# with the reason on standard error: it cannot be had here. LATHE_PYTHON_SECONDS: time for pip (default 600).
set -u
cd "$(dirname "$0")/.." || exit 1
list=tests/python.txt
most=${LATHE_PYTHON_SECONDS:-600}

skip() {
    echo "skipped: Python with torch and JAX: $*" >&2
    exit 77
}

command -v python3 >/dev/null || skip 'there is no python3'
[ -n "${XDG_CACHE_HOME:-${HOME:-}}" ] || skip 'neither XDG_CACHE_HOME nor HOME says where to keep it'
root=${XDG_CACHE_HOME:-$HOME/.cache}/lathe-tests/python
key=$({ python3 -V && grep -v '^#' "$list"; } | sha256sum | cut -c 1-16)
folder=$root/$key
found() {
    [ -e "$folder/complete" ] && "$folder/bin/python" -c '' 2>/dev/null && echo "$folder/bin/python"
}

if found; then
    touch "$folder/complete"
    exit 0
fi
[ "${1:-}" != --known ] || skip 'it was not made yet (tests/python_env.sh makes it)'
mkdir -p "$root" || skip "$root cannot be made"

# One process makes it; others wait, and find it.
exec 9>"$root/lock"
flock -w "$most" 9 || skip "another process has been making it for $most seconds"
found && exit 0
free=$(df -Pk "$root" | awk 'NR == 2 { print $4 }')
[ "$free" -gt 8000000 ] || skip "$root has less than 8 GB left"
rm -rf "$folder"
log=$root/$key.log
python3 -m venv "$folder" >"$log" 2>&1 || skip "python3 -m venv fails (Debian: python3-venv); $log has its output"
timeout "$most" "$folder/bin/python" -m pip install --disable-pip-version-check --no-input --no-cache-dir \
    --retries 1 --timeout 20 \
    -r "$list" >>"$log" 2>&1
case $? in
0) ;;
124) rm -rf "$folder" && skip "pip took more than $most seconds; $log has its output" ;;
*)
    rm -rf "$folder"
    skip "pip cannot install what tests/python.txt lists for $(python3 -V): no network, or no such versions; see $log"
    ;;
esac
"$folder/bin/python" -c 'import numpy, pytest, torch, jax' >>"$log" 2>&1 ||
    skip "torch or JAX cannot be imported after they were installed; $log has the reason"
: >"$folder/complete"
# Those of other versions go when nobody has asked for them for a month.
find "$root" -mindepth 2 -maxdepth 2 -name complete -mtime +30 | while IFS= read -r old; do rm -rf "${old%/complete}"; done
found
