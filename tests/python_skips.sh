#!/bin/sh
# python_skips.sh: where Python with torch and JAX cannot be had, python_env.sh says so by name, leaves nothing half made, and is no
# failure. By programs that stand in for python3: no network is used.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
export XDG_CACHE_HOME="$work/cache"

skips() { # skips WHAT TEXT COMMAND...: exit code 77, nothing on standard output, the text in one line of the other
    what=$1
    text=$2
    shift 2
    "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    if [ $code = 77 ] && [ ! -s "$work/out" ] && grep -q "^skipped: Python with torch and JAX: .*$text" "$work/err"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $what: exit code $code, said: $(cat "$work/out" "$work/err")"
    fi
}
command -v python3 >/dev/null || { echo 'skipped: there is no python3'; exit 77; }
[ "$(df -Pk "$work" | awk 'NR == 2 { print $4 }')" -gt 8000000 ] || { echo 'skipped: less than 8 GB are left for temporary files'; exit 77; }
skips 'not made yet' 'was not made yet' sh tests/python_env.sh --known
skips 'no cache folder' 'neither XDG_CACHE_HOME nor HOME' env -u XDG_CACHE_HOME -u HOME sh tests/python_env.sh

# A python3 that cannot make environments; one whose pip cannot install anything; one whose pip does not end.
stub() { # stub VENV PIP: what these do
    mkdir -p "$work/bin"
    printf '#!/bin/sh\ncase $* in -V) echo Python 3.99 ;; *venv*) %s ;; esac\n' "$1" >"$work/bin/python3"
    printf '#!/bin/sh\n%s\n' "$2" >"$work/python"
    chmod +x "$work/bin/python3" "$work/python"
}
made="mkdir -p \"\$3/bin\" && cp '$work/python' \"\$3/bin/python\""
stub 'exit 1' ''
skips 'no venv' 'python3 -m venv fails' env PATH="$work/bin:$PATH" sh tests/python_env.sh
stub "$made" 'exit 1'
skips 'pip fails' 'pip cannot install what tests/python.txt lists for Python 3.99' env PATH="$work/bin:$PATH" sh tests/python_env.sh
stub "$made" 'sleep 20'
skips 'no time' 'pip took more than 1 seconds' env PATH="$work/bin:$PATH" LATHE_PYTHON_SECONDS=1 sh tests/python_env.sh
stub "$made" 'case $* in *import*) exit 1 ;; esac'
skips 'no import' 'torch or JAX cannot be imported' env PATH="$work/bin:$PATH" sh tests/python_env.sh
stub "$made" ''
good() { env PATH="$work/bin:$PATH" sh tests/python_env.sh "$@" 2>"$work/err"; }
if [ "$(good)" = "$(good --known)" ] && [ -x "$(good)" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); cat "$work/err"; fi
rm -rf "$work/cache"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
