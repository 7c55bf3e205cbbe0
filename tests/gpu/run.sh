#!/bin/sh
# run.sh: everything that needs a GPU, from the root of the repository: tests, compute-sanitizer, benchmark.
#     sh tests/gpu/run.sh BUILD LOGS [all|tests|portable|aot|sanitize|bench]...
# BUILD holds lathe_gpu_tests and liblathe.so; LOGS gets a log per part, compare.json and compare.md. From the
# environment: PYTHON (python3), BENCH_FLAGS (for compare.py), TEST_FLAGS (for lathe_gpu_tests), CACHE (a folder of
# compiled kernels that outlives the run). Exit code 0: nothing failed,
# 77: no GPU here. A compact summary comes last.
set -u
. "$(dirname "$0")/begin.sh"
[ $# -gt 0 ] || set -- all
summary=$logs/summary.txt
: >"$summary"

say() { printf '%s\n' "$*" | tee -a "$summary"; }

wants() { # wants PART PART-LIST...
    part=$1
    shift
    for word in "$@"; do
        [ "$word" = all ] || [ "$word" = "$part" ] || continue
        return 0
    done
    return 1
}

find_file() { # find_file NAME: in the build folder
    find "$build" -name "$1" -not -path '*/CMakeFiles/*' 2>/dev/null | head -n 1
}

# run_part NAME SECONDS COMMAND...: run_logged, and how it went.
run_part() {
    started=$(date +%s)
    run_logged "$@"
    took=$(($(date +%s) - started))
    case $status in
    0) say "$name: passed (${took} s)" ;;
    77) say "$name: skipped (${took} s)" ;;
    124) say "$name: FAILED, stopped after ${seconds} s" ;;
    *) say "$name: FAILED with exit code $status (${took} s)" ;;
    esac
    return "$status"
}

tests=$(find_file lathe_gpu_tests)
library=$(find_file 'liblathe.so')
if [ -z "$tests" ]; then
    say "no lathe_gpu_tests in $build: build it first"
    exit 1
fi
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee -a "$summary"

if wants tests "$@"; then
    # shellcheck disable=SC2086
    run_part tests 400 "$tests" --cache "$cache" ${TEST_FLAGS:-}
    status=$?
    tail -n 60 "$logs/tests.log" >>"$summary"
    if [ "$status" -eq 77 ]; then
        cat "$logs/tests.log"
        exit 77
    fi
fi

# The same matrix with the kernels that run on every device, where this one has its own.
if wants portable "$@"; then
    LATHE_TEMPLATE=$portable
    export LATHE_TEMPLATE
    # shellcheck disable=SC2086
    run_part portable 400 "$tests" --cache "$cache" ${TEST_FLAGS:-}
    tail -n 60 "$logs/portable.log" >>"$summary"
    unset LATHE_TEMPLATE
fi

# A library compiled ahead of time on this machine, beside the JIT: needs lathe and liblathe_rt.a in BUILD, and a C compiler.
if wants aot "$@"; then
    made=$logs/gpu_aot
    if "$(find_file lathe)" aot causal document rms_norm --pass forward,backward --arch sm_80,sm_90a --problem dtype=bf16,d=128 \
        --problem dtype=bf16,d=128,o=none,lse=none,deterministic=1 \
        --problem dtype=bf16,d=256,o=none,lse=none,deterministic=1 --problem dtype=bf16,n=1000 \
        --problem dtype=bf16,n=1000,rstd=none --name gpu_aot -o "$made" \
        >"$logs/aot-build.log" 2>&1 && ${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -Iinclude -I"$made" tests/gpu/aot.c tests/gpu/device.c \
        "$made/libgpu_aot.a" "$(find_file liblathe_rt.a)" "$library" -Wl,-rpath,"$(dirname "$library")" -ldl -lpthread -lm \
        -o "$logs/gpu_aot_test" >>"$logs/aot-build.log" 2>&1; then
        run_part aot 60 "$logs/gpu_aot_test"
        cat "$logs/aot.log" >>"$summary"
    else
        say "aot: FAILED to build, see aot-build.log: $(tail -n 1 "$logs/aot-build.log" | cut -c1-200)"
        failed=$((failed + 1))
    fi
fi

# memcheck sees every group; the slower tools one group each. initcheck knows nothing of what the test uploads or fills
# through other means than the driver, so every byte that it reports was read before anybody wrote it.
sanitize() { # sanitize SUFFIX: with the kernels in the cache the sanitizer has nothing to compile
    run_part "warm$1" 200 "$tests" --quick --cache "$cache"
    run_part "memcheck$1" 240 compute-sanitizer --tool memcheck --error-exitcode 9 "$tests" --quick --cache "$cache"
    for tool in racecheck synccheck initcheck; do
        for group in layouts rowwise; do
            run_part "$tool-$group$1" 120 compute-sanitizer --tool "$tool" --error-exitcode 9 "$tests" --quick --only "$group" \
                --cache "$cache"
        done
    done
    for log in memcheck racecheck-layouts racecheck-rowwise synccheck-layouts synccheck-rowwise initcheck-layouts initcheck-rowwise; do
        say "$log$1: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$logs/$log$1.log" | tail -n 1) $(tail -n 1 "$logs/$log$1.log" | cut -c1-100)"
    done
}
if wants sanitize "$@"; then
    if command -v compute-sanitizer >/dev/null; then
        sanitize ''
        LATHE_TEMPLATE=$portable
        export LATHE_TEMPLATE
        sanitize -portable
        unset LATHE_TEMPLATE
    else
        say "sanitize: skipped, compute-sanitizer is not installed"
    fi
fi

if wants bench "$@"; then
    if [ -z "$library" ]; then
        say "bench: FAILED, no liblathe.so in $build"
        failed=$((failed + 1))
    elif ! "${PYTHON:-python3}" -c 'import torch' 2>/dev/null; then
        say "bench: skipped, ${PYTHON:-python3} has no torch"
    else
        # shellcheck disable=SC2086
        run_part bench 900 "${PYTHON:-python3}" tests/bench/compare.py --library "$library" --cache "$cache" --out "$logs" \
            ${BENCH_FLAGS:-}
        sed -n '/^case  /,$p' "$logs/bench.log" >>"$summary"
        grep -E 'did not run|left out|Error' "$logs/bench.log" >>"$summary"
    fi
fi

printf '\n---- summary ----\n'
cat "$summary"
if [ "$failed" -gt 0 ]; then
    echo "$failed parts failed; logs in $logs"
    exit 1
fi
echo "all parts passed; logs in $logs"
