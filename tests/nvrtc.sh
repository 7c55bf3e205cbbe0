#!/bin/sh
# nvrtc.sh: some specs of every kind, both passes, compile for sm_80 and sm_90a with older NVRTCs and with the one of
# this machine, and the compiler says nothing. The older ones come from PyPI's wheels nvidia-cuda-nvrtc-cu12, by pip,
# into ${XDG_CACHE_HOME:-~/.cache}/lathe-tests/nvrtc; what has compiled before is known by its text (stamps.sh), and
# needs none of them. LATHE names the tool. What cannot be had is skipped by its name; exit code 77: none of them can.
set -u
cd "$(dirname "$0")/.." || exit 1
[ -x "${LATHE:-}" ] || { echo "tests/nvrtc.sh: skipped: the tool lathe was not built" >&2; exit 77; }
stamp_name=nvrtc
. tests/stamps.sh
stamp_compiler=
wheels='12.1.105 12.4.127 12.8.93'
root=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/lathe-tests/nvrtc

cases() {
    cat <<'LIST'
alibi forward dtype=bf16,d=64
alibi backward dtype=bf16,d=64
causal forward dtype=f16,q=1,kv=4096,d=64
simple_gla forward dtype=bf16,d=64
simple_gla backward dtype=bf16,d=64
delta_rule forward dtype=bf16,d=64
rms_norm forward dtype=bf16,n=1024
rms_norm backward dtype=bf16,n=1024
cumsum forward dtype=f32,n=4096
swiglu forward dtype=bf16
swiglu backward dtype=bf16
embedding backward dtype=f32
LIST
}

# one VERSION SPEC PASS PROBLEM FOLDER: compile it, unless it is known; prints what is wrong. VERSION "here": the
# NVRTC of this machine.
one() {
    version=$1 spec=$2 pass=$3 problem=$4 folder=$5
    out=$folder/$version.$spec.$pass
    for arch in sm_80 sm_90a; do
        "$LATHE" gen "specs/$spec.lua" --all --pass "$pass" --arch "$arch" --problem "$problem" -o - || echo "no text for $arch" >&2
    done >"$out.cu" 2>"$out.log"
    [ -s "$out.log" ] && { echo "FAILED $version, $spec $pass: $(head -n 1 "$out.log")"; return; }
    name=$version
    [ "$version" != here ] || name=$("$LATHE" --version | sed -n 's/^NVRTC \([0-9.]*\),.*/\1/p')
    key=$(stamp_key nvrtc "$name" <"$out.cu")
    stamp_known "$key" && echo PASSED && return
    if [ "$version" != here ]; then
        fetch "$version" "$folder" || return
        LD_LIBRARY_PATH=$root/$version/as:$root/$version/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        export LD_LIBRARY_PATH
        "$LATHE" --version | grep -q "^NVRTC ${version%.*}, $root/" || {
            echo "FAILED $version: $("$LATHE" --version | tail -n 1)"
            return
        }
    fi
    "$LATHE" compile "specs/$spec.lua" --pass "$pass" --arch sm_80,sm_90a --problem "$problem" -o "$out" >"$out.log" 2>&1
    code=$?
    if [ $code = 3 ]; then # what compiles or bundles is not here
        [ "$version" != here ] || version='of this machine'
        echo "SKIP NVRTC $version: $(tail -n 1 "$out.log")"
    elif [ $code != 0 ]; then
        echo "FAILED $version, $spec $pass: $(head -n 1 "$out.log")"
    elif grep -iE 'warning|remark' "$out.log" >"$out.said"; then
        echo "FAILED $version, $spec $pass says: $(head -n 1 "$out.said")"
    else
        stamp_add "$key"
        echo PASSED
        rm -f "$out" "$out.cu"
    fi
}

# fetch VERSION FOLDER: it lies in its folder of the cache. `as` has it by the name that the tool looks for first.
fetch() {
    [ ! -e "$root/$1/complete" ] || return 0
    mkdir -p "$root" && {
        flock 9
        [ ! -e "$root/$1/complete" ] || return 0
        [ ! -e "$2/$1.failed" ] && unpack "$1" >"$root/$1.log" 2>&1 && : >"$root/$1/complete"
    } 9>"$root/lock" && return 0
    : >"$2/$1.failed"
    echo "SKIP NVRTC $1: pip cannot get nvidia-cuda-nvrtc-cu12 $1 (no network, or no pip); $root/$1.log has its output"
    return 1
}

unpack() {
    python=${LATHE_PYTHON:-$(sh tests/python_env.sh --known 2>/dev/null || echo python3)}
    rm -rf "${root:?}/$1"
    mkdir -p "$root/$1/wheel" "$root/$1/as"
    timeout 120 "$python" -m pip download --disable-pip-version-check --no-input --no-deps --no-cache-dir \
        --retries 1 --timeout 20 \
        -d "$root/$1/wheel" "nvidia-cuda-nvrtc-cu12==$1" || return
    "$python" -m zipfile -e "$root/$1"/wheel/*.whl "$root/$1/wheel" || return
    mv "$root/$1/wheel/nvidia/cuda_nvrtc/lib" "$root/$1/lib" && rm -rf "$root/$1/wheel" || return
    for major in 12 13; do ln -s ../lib/libnvrtc.so.12 "$root/$1/as/libnvrtc.so.$major"; done
}

if [ "${1:-}" = --one ]; then
    one "$2" "$3" "$4" "$5" "$6"
    exit 0
fi

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
stamps_log "$temp/good"
for version in here $wheels; do
    cases | while read -r spec pass problem; do echo "$version $spec $pass $problem $temp"; done
done >"$temp/list"
xargs -P "$(nproc)" -n 5 sh tests/nvrtc.sh --one <"$temp/list" >"$temp/said"
sort -u "$temp/said" | sed -n 's/^SKIP /skipped: /p'
grep '^FAILED' "$temp/said"
stamps_renew
passed=$(grep -c '^PASSED' "$temp/said")
skipped=$(grep -c '^SKIP' "$temp/said")
total=$(wc -l <"$temp/list")
failed=$((total - passed - skipped))
echo "$total compilations by NVRTCs $wheels and this machine's: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] || exit 1
[ "$skipped" != "$total" ] || exit 77
