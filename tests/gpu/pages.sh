#!/bin/sh
# pages.sh: keys in pages on a GPU: what proves Hopper's kernel for them and their gradients, then times.
#     sh tests/gpu/pages.sh BUILD LOGS [prove|sanitize|time]...
# BUILD holds lathe_gpu_tests and liblathe.so. prove: every form of a call, by the plan's kernels, by Hopper's and by
# the portable ones; sixteen threads in one process, whose launches share tensor maps. sanitize: memcheck, racecheck
# and synccheck of the same. time: pages of 16 to 256 keys beside contiguous ones. From the environment: PYTHON, CACHE.
# Exit code 0: nothing failed, 77: no GPU here.
set -u
. "$(dirname "$0")/begin.sh"
[ $# -gt 0 ] || set -- prove sanitize time
tests=$build/lathe_gpu_tests
hopper=attention_fwd_sm90,attention_bwd_sm90

# step NAME TEMPLATES SECONDS COMMAND...
step() {
    step=$1
    templates=$2
    limit=$3
    shift 3
    [ -z "$templates" ] || set -- env LATHE_TEMPLATE="$templates" "$@"
    run_logged "$step" "$limit" "$@"
    echo "$step: exit code $status; $(grep -E 'passed|SUMMARY|us ' "$logs/$step.log" | tail -n 1)"
    if [ "$status" -eq 77 ]; then
        exit 77
    fi
}

for part in "$@"; do
    case $part in
    prove)
        step forms '' 500 "$tests" --only =forms --cache "$cache"
        step forms-hopper "$hopper" 500 "$tests" --only =forms --cache "$cache" --threads 16
        step forms-portable "$portable" 500 "$tests" --only =forms --cache "$cache"
        step batch '' 300 "$tests" --only =batch --cache "$cache"
        ;;
    sanitize)
        for tool in memcheck racecheck synccheck; do
            step "$tool-hopper" "$hopper" 580 compute-sanitizer --tool "$tool" --error-exitcode 9 "$tests" --quick --only =forms \
                --cache "$cache"
        done
        ;;
    time)
        step packed '' 300 "${PYTHON:-python3}" tests/bench/packed.py --library "$build/liblathe.so" --cache "$cache" --specs causal,full \
            --lengths mixed,equal,long --pages 16,32,64,128,256 --template attention_fwd_sm90
        step decode '' 300 "${PYTHON:-python3}" tests/bench/decode.py --library "$build/liblathe.so" --cache "$cache" \
            --only plain,pages16,pages64,packed64
        sed -n '/us /p' "$logs/packed.log" "$logs/decode.log"
        ;;
    *)
        echo "pages.sh: no part '$part'; there are prove, sanitize and time" >&2
        exit 2
        ;;
    esac
done
[ "$failed" -eq 0 ] && echo "nothing failed; logs in $logs"
exit $((failed > 0))
