# begin.sh: sourced by run.sh and pages.sh, which are called as SCRIPT BUILD LOGS [PART]...: gives build, logs, cache (a folder of
# compiled kernels), failed (how many parts), portable (templates that every GPU runs) and run_logged; what is left of the
# arguments are parts. Fewer than two: the first lines of the script are said.
if [ $# -lt 2 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
build=$1
logs=$2
shift 2
cache=${CACHE:-${TMPDIR:-/tmp}/lathe-gpu-cache}
mkdir -p "$logs" "$cache" || exit 1
portable=attention_fwd_sm80,attention_bwd_sm80
failed=0

# run_logged NAME SECONDS COMMAND...: into LOGS/NAME.log; sets and gives status, counts a failure. 77: skipped
run_logged() {
    name=$1
    seconds=$2
    shift 2
    timeout "$seconds" "$@" >"$logs/$name.log" 2>&1
    status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || failed=$((failed + 1))
    return "$status"
}
