#!/bin/sh
# wheel.sh: the wheel of runtime/package/wheel.sh, installed where there is neither a compiler nor CMake nor a toolkit: checks, texts,
# numbers of the host device, pictures, and NVRTC of pip's packages of CUDA 12 and 13, which the library finds by itself. Then the one
# for aarch64 under qemu-user, where texts and numbers are byte for byte those of x86. `sh tests/wheel.sh --get` fetches what that
# takes (500 MB); without it, and where it was not fetched before: exit code 77. Root: bubblewrap (bwrap), or else a bare environment.
set -u
cd "$(dirname "$0")/.." || exit 1
cache=${LATHE_WHEEL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/lathe-wheel}
house=$cache/test
passed=0
failed=0
skip() {
    echo "wheel: skipped: $*"
    exit 77
}
complain() {
    failed=$((failed + 1))
    echo "FAILED $*"
    tail -n 15 "$work/log" | cut -c 1-300 | sed 's/^/    /'
}
ok() { # ok WHAT COMMAND...
    what=$1
    shift
    if "$@" >"$work/log" 2>&1 </dev/null; then passed=$((passed + 1)); else complain "$what: $*"; fi
}

[ "$(uname -m)" = x86_64 ] || skip 'wheels are built on x86_64'
known=--known
if [ "${1:-}" = --get ]; then
    known=
    sh runtime/package/wheel.sh --get && mkdir -p "$house" || exit 1
    "$cache"/tools-*/bin/python -m pip download --disable-pip-version-check --no-input -q --only-binary :all: -d "$house" numpy \
        nvidia-cuda-nvrtc-cu12 nvidia-nvfatbin-cu12 'nvidia-cuda-nvrtc>=13,<14' 'nvidia-nvfatbin>=13,<14' &&
        : >"$house/complete" || exit 1
fi
[ -e "$house/complete" ] || skip "NumPy and NVRTC for it are not here: sh tests/wheel.sh --get fetches them"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh runtime/package/wheel.sh $known -o "$work/dist" >"$work/log" 2>&1
case $? in
0) passed=$((passed + 1)) ;;
77) skip "$(tail -n 1 "$work/log")" ;;
*)
    complain 'no wheels'
    exit 1
    ;;
esac
here_wheel=$(ls "$work"/dist/*manylinux_2_28_x86_64.whl)
there_wheel=$(ls "$work"/dist/*manylinux_2_28_aarch64.whl)

# ---- x86_64: where there is nothing ----------------------------------------------------------------------------------

base=$(python3 -c 'import sys; print(sys.base_prefix)')
# bare VENV COMMAND...: a root with the C library, Python and that environment; no compiler, no CMake, no toolkit, no network.
if bwrap --ro-bind / / true 2>/dev/null; then
    bare() {
        venv=$1
        shift
        set -- --clearenv --setenv PATH "$venv/bin" --setenv HOME "$venv" --chdir "$venv" "$@"
        for folder in /lib /lib64 /usr/lib /etc/ld.so.cache; do [ ! -e $folder ] || set -- --ro-bind $folder $folder "$@"; done
        if [ "$base" = /usr ]; then set -- --ro-bind /usr/bin/python3 /usr/bin/python3 "$@"; else set -- --ro-bind "$base" "$base" "$@"; fi
        bwrap --unshare-net --proc /proc --dev /dev --bind "$venv" "$venv" --setenv LATHE_TEST_ROOT bare "$@"
    }
else
    echo 'no bwrap: a bare environment, on this root'
    bare() {
        venv=$1
        shift
        (cd "$venv" && env -i PATH="$venv/bin" HOME="$venv" "$@")
    }
fi

cat >"$work/first.py" <<'PY'
import os, shutil, subprocess, sys
import lathe, numpy as np

venv, cuda = sys.argv[1:]
bare = "LATHE_TEST_ROOT" in os.environ
assert lathe.__file__.startswith(venv) and not any(map(shutil.which, ("cc", "gcc", "cmake", "nvcc")))
q, k, v = (np.random.default_rng(i).standard_normal((1, 2, 9, 4)) for i in range(3))
s = np.where(np.tri(9, dtype=bool), q @ k.swapaxes(2, 3) / 2, -np.inf)
w = np.exp(s - s.max(-1, keepdims=True))
np.testing.assert_allclose(lathe.load("causal")(q, k, v), w / w.sum(-1, keepdims=True) @ v, rtol=1e-12)
mine = lathe.compile("return attention { mask_mod = causal, score_mod = function(s) return 50 * tanh(s / 50) end }")
assert "attention_fwd_sm90" in mine.source(*(lathe.Shaped((1, 2, 256, 64), "bf16") for _ in "qkv"), arch="sm_90a")

def tool(*words):
    run = subprocess.run(["lathe", *words], capture_output=True, text=True)
    assert run.returncode == 0, (words, run.stdout, run.stderr)
    return run.stdout

assert "FAILED" not in tool("check", "causal", "rms_norm", "gated_delta", "swiglu")
tool("gen", "alibi", "--arch", "sm_90a", "-o", "alibi.cu")
tool("draw", "alibi", "-o", "alibi.png")
assert open("alibi.png", "rb").read(4) == b"\x89PNG"
report = subprocess.run([sys.executable, "-m", "lathe"], capture_output=True, text=True, check=True).stdout
for said in (report, tool("report")):
    lines = dict(line.split(None, 1) for line in said.splitlines())
    if bare:
        assert lines["NVRTC"].startswith(cuda + ".") and "/site-packages/nvidia/" in lines["NVRTC"], lines["NVRTC"]
        assert lines["fatbins"] == "by nvFatbin", lines["fatbins"]
tool("compile", "alibi", "--arch", "sm_80,sm_90a", "--problem", "dtype=bf16,d=64", "-o", "alibi.fatbin")
assert open("alibi.fatbin", "rb").read(4) == b"\x50\xed\x55\xba"
tool("compile", "rms_norm", "--arch", "sm_90a", "--problem", "dtype=bf16,n=1024", "--cache", "cache")
print("all of it")
PY
for cuda in 12 13; do
    venv=$work/venv$cuda
    ok "an environment, CUDA $cuda" python3 -m venv "$venv"
    ok "installs, CUDA $cuda" "$venv/bin/python" -m pip install --disable-pip-version-check --no-index --find-links "$house" \
        "$here_wheel[cuda$cuda]"
    cp "$work/first.py" "$venv/"
    ok "runs, CUDA $cuda" bare "$venv" "$venv/bin/python" "$venv/first.py" "$venv" $cuda
done

# ---- kernels for another processor: NVRTC and the generator are this machine's, the archive is not --------------------

ok 'kernels for aarch64' env AR="$cache/bin/aarch64-ar" ZIG_GLOBAL_CACHE_DIR="$cache/zig" "$work/venv13/bin/lathe" aot softmax \
    --arch sm_80 --problem dtype=f32,n=64 --cc "$cache/bin/aarch64-cc" --name k -o "$work/k"
ok 'their machine' sh -c 'readelf -h "$1" | grep -q AArch64 && ! readelf -h "$1" | grep -q X86-64' sh "$work/k/libk.a"

# ---- the source distribution: a C compiler is all ---------------------------------------------------------------------

tools=$(ls -d "$cache"/tools-*/bin | head -n 1)
ok 'a package of the source distribution' tar -tf "$work"/dist/*.tar.gz --wildcards '*/third_party/lua/src/lua.h' \
    '*/third_party/zlib/zlib.h' '*/LICENSE' '*/runtime/package/THIRD_PARTY' '*/templates/attention/fwd_sm80.cuh'
mkdir "$work/source" && tar -xf "$work"/dist/*.tar.gz --strip-components=1 -C "$work/source"
ok 'its own Lua is taken' env PATH="$tools:$PATH" cmake -S "$work/source" -B "$work/source/b" -DLATHE_THIRD_PARTY=third_party \
    -DLATHE_LUA_INCLUDE_DIR=/nowhere -DLATHE_TESTS=OFF -DLATHE_EXAMPLES=OFF
ok 'Lua builds with the C compiler of this machine' cmake --build "$work/source/b" -j 2 --target lathe_lua_static lathe_png

# ---- aarch64 -----------------------------------------------------------------------------------------------------------

qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64)
export QEMU_LD_PREFIX="${QEMU_LD_PREFIX:-/usr/aarch64-linux-gnu}"
unpack() { "$tools/python" -m zipfile -e "$1" "$work/$2" && chmod +x "$work/$2"/*.data/scripts/lathe; }
ok 'unpacks' unpack "$here_wheel" x86
ok 'unpacks' unpack "$there_wheel" arm
x86=$(ls "$work"/x86/*.data/scripts/lathe)
arm=$(ls "$work"/arm/*.data/scripts/lathe)
if [ -n "$qemu" ] && "$qemu" "$arm" --version >/dev/null 2>&1; then
    mkdir "$work/o"
    alike() { # alike WORD...: what the tool prints, but for times, and the file FILE that it writes, are the same on both
        "$x86" "$@" 2>&1 </dev/null | sed -E '/^(time|rate) /d' >"$work/o/x86.txt"
        [ ! -e "$work/o/FILE" ] || mv "$work/o/FILE" "$work/o/x86"
        "$qemu" "$arm" "$@" 2>&1 </dev/null | sed -E '/^(time|rate) /d' >"$work/o/arm.txt"
        [ ! -e "$work/o/FILE" ] || mv "$work/o/FILE" "$work/o/arm"
        ok "the same text: $*" cmp "$work/o/x86.txt" "$work/o/arm.txt"
        case " $* " in *" -o "* | *" --output "*) ok "the same file: $*" cmp "$work/o/x86" "$work/o/arm" ;; esac
        rm -f "$work/o/x86" "$work/o/arm"
    }
    for spec in causal alibi mla sinks gated_delta mamba2 rms_norm cross_entropy swiglu adamw cumsum; do
        for arch in sm_80 sm_90a; do
            alike gen $spec --arch $arch -o "$work/o/FILE"
            [ $spec = adamw ] || alike gen $spec --pass backward --arch $arch -o "$work/o/FILE"
        done
    done
    for spec in causal softcap sinks; do
        alike check $spec
        alike run $spec --device host --problem dtype=f32,q=70,d=32,h=2 --output o="$work/o/FILE"
        alike run $spec --device host --pass backward --problem dtype=f32,q=33,d=16,h=2 --output dk="$work/o/FILE"
    done
    for spec in gated_delta gla; do alike run $spec --device host --problem dtype=f32,t=40,d=16,h=2 --output o="$work/o/FILE"; done
    alike run rms_norm --device host --problem dtype=bf16,rows=9,n=100 --output y="$work/o/FILE"
    alike run swiglu --device host --problem dtype=f16 --output y="$work/o/FILE"
    alike draw alibi --problem h=1,q=128,d=64 -o "$work/o/FILE"
    cat >"$work/loads.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(int n, char **words)
{
    void *library = dlopen(words[n - 1], RTLD_NOW);
    const char *(*version)(void) = library ? (const char *(*)(void))dlsym(library, "lathe_version") : 0;
    puts(version ? version() : dlerror());
    return !version;
}
C
    ok 'a program for aarch64' env ZIG_GLOBAL_CACHE_DIR="$cache/zig" "$cache/bin/aarch64-cc" -o "$work/loads" "$work/loads.c" -ldl
    ok 'the library is opened on aarch64' "$qemu" "$work/loads" "$work/arm/lathe/lib/liblathe.so"
else
    echo 'skipped: aarch64: programs for it cannot be run here (qemu-user-static and libc6-arm64-cross)'
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
