# common.sh: for the scripts beside it. LATHE is the tool; every script works in a fresh folder of its own.
#
#     expect CODE STDOUT STDERR COMMAND...   the exit code, and a text that each stream must contain;
#                                            '' for a stream means that it must be empty, '*' anything
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
LATHE=${LATHE:-$here/build/lathe}
[ -x "$LATHE" ] || { echo "LATHE=$LATHE is not a program"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
LATHE_CACHE_DIR=$work/cache
export LATHE_CACHE_DIR
passed=0
failed=0

complain() {
    failed=$((failed + 1))
    printf 'FAILED %s\n' "$*"
}

holds() { # holds STREAM WANTED
    case $2 in
    '*') ;;
    '') [ ! -s "$1" ] ;;
    *) grep -qF -e "$2" "$1" ;;
    esac
}

expect() {
    wanted_code=$1
    wanted_out=$2
    wanted_err=$3
    shift 3
    "$@" >out.txt 2>err.txt </dev/null
    code=$?
    before=$failed
    [ "$code" = "$wanted_code" ] || complain "exit code $code, expected $wanted_code: $*"
    holds out.txt "$wanted_out" || complain "standard output lacks '$wanted_out': $*"
    holds err.txt "$wanted_err" || complain "standard error lacks '$wanted_err': $*"
    if [ "$failed" -gt "$before" ]; then
        sed 's/^/    out: /' out.txt | head -20
        sed 's/^/    err: /' err.txt | head -20
    else
        passed=$((passed + 1))
    fi
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ] || exit 1
    [ "$passed" -gt 0 ] || exit 77
    exit 0
}
