"""Kernels that no GPU has run yet and that are taken by their name alone: proves each, then times it beside what serves
the same call today. What is right and not slower is then taken by default: its switch goes, and its rows here.

    python3 tests/gpu/unproven.py BUILD LOGS [--only WORDS] [--no-times | --no-proofs]
    python3 tests/gpu/unproven.py BUILD LOGS --dry      # without a GPU: that a kernel can be planned for each row

BUILD holds lathe. WORDS, with commas: rows whose text has one of them. LOGS gets unproven.json and a log for each row
that failed. Each call is a process with a time limit, for a kernel that waits for ever. Exit code 0: all is right."""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import shlex
import subprocess

E4M3 = "q=f8e4m3,k=f8e4m3,v=f8e4m3"
NARROW = "dtype=bf16,k=f8e4m3,v=f8e4m3,h=32,h_kv=8,d=128"
LATENT = "dtype=bf16,k=f8e4m3,b=64,h=16,h_kv=1,q=1,kv=4096,d=512,d2=64"
LATENT_SPEC = str(pathlib.Path(__file__).parents[1] / "specs/good/latent_tokens.lua")
LATENT_KERNELS = "attention_mla_narrow", "attention_mla_narrow_sm90"
KEPT = "dtype=bf16,h=16,t=2048,d=128,states=f32,states_index=i32,kept=32"
KEPT_TOKENS, KEPT_EVERY = 2048, 64  # behind other tokens no template by chunks leaves a state
RUNS, PIECES = "linear_delta_runs_sm90", "linear_delta_sm90"
GATED_SPECS = pathlib.Path(__file__).parents[1] / "emulate/specs"
LONG = "dtype=bf16,b=1,t=32768,d=128"
WIDE_BACK, LATENT_BACK = "attention_bwd_wide_sm90", "attention_bwd_latent_sm90"
FP8, FP8_SPECS = "attention_fwd_fp8_sm90", "full causal sliding_window softcap alibi document sinks sigmoid".split()


def call(spec, template, problem, *more):
    return [spec, *more, *(["--template", template] if template else []), "--problem", problem]


def proofs():
    for problem in (f"{NARROW},q=1,b=64,kv=4096", f"{NARROW},q=1,b=8,kv=16384", f"{NARROW},q=1,b=64,kv=4096,page=64"):
        yield call("fp8_cache", None, problem)
    yield call("fp8_cache", None, f"{NARROW},b=1,q=512,page=64,most=64,used_kv=i32")
    for spec in ("causal", "fp8_cache", "softcap", "sliding_window"):
        yield call(spec, "attention_fwd_narrow", f"{NARROW},b=2,q=700,kv=1500")
    half = NARROW.replace("bf16", "f16")  # weights beside the largest of their row; of f16 k and v, too
    for problem in (f"{half},q=1,b=8,kv=4096", f"{half},q=1,b=8,kv=4096,page=64", f"{half},b=2,q=700,kv=1500",
                    f"{half},b=2,q=700,page=64,most=24", "dtype=f16,h=16,h_kv=4,q=2000,d=64",
                    "dtype=f16,h=16,h_kv=4,q=2000,d=128", "dtype=f16,h=32,h_kv=8,q=1,kv=8192,d=128"):
        yield call("fp8_cache", None, problem)
    for dtypes, dims in (("dtype=bf16,k=f8e4m3,v=f8e4m3", "d=128"), ("dtype=f16,k=i8,v=f8e5m2", "d=64"),
                         ("dtype=f32,k=f8e4m3,v=i8", "d=64"), ("dtype=bf16,v=f8e4m3", "d=192,d_v=128")):
        problem = f"{dtypes},seqs=4,h=8,h_kv=2,q=2000,kv=1024,{dims},page=64,used_kv=i32"
        yield call("causal", None, problem, "--pass", "backward")
    for pages in ("", ",page=64"):
        for template in LATENT_KERNELS:
            yield call(LATENT_SPEC, template, LATENT + pages)
    for heads, pages in itertools.product((64, 128), ("", ",page=64")):
        yield call(LATENT_SPEC, LATENT_KERNELS[1], LATENT.replace("h=16", f"h={heads}") + pages)
    for sizes in ("b=3,h=16,q=4,kv=1000", "b=3,h=16,q=1,kv=1", "b=2,h=80,q=3,kv=5000",
                  "b=64,h=16,q=1,kv=4096,used_kv=i32", "seqs=5,h=16,q=60,kv=4096,page=16,most=256"):
        for dtypes in ("dtype=bf16,k=f8e4m3", "dtype=f16,k=i8", "dtype=bf16,k=f8e5m2"):
            yield call("mla_decoupled", LATENT_KERNELS[1], f"{dtypes},h_kv=1,d=512,d2=64,d_v=512,{sizes}")
    yield call("mla", LATENT_KERNELS[1], "dtype=bf16,k=i8,b=8,h=16,h_kv=1,q=1,kv=3000,d=576,d_v=512")
    yield call("causal", None, f"{NARROW},b=1,q=1024", "--pass", "backward")
    for spec in ("causal", "softcap", "sliding_window"):
        problem = "dtype=bf16,b=1,h=8,h_kv=4,q=3000,seqs=7,d=192,d_v=128"
        yield call(spec, WIDE_BACK, problem, "--pass", "backward")
    for sizes in ("h=16,h_kv=1,q=2048", "h=6,h_kv=2,q=333,kv=700"):
        yield call("mla", LATENT_BACK, f"dtype=bf16,b=2,{sizes},d=576,d_v=512", "--pass", "backward")
    pages = "dtype=bf16,seqs=8,h=32,h_kv=8,q=16384,kv=4096,d=128,page=64,used_kv=i32"
    yield call("causal", None, pages, "--pass", "backward")
    for spec in ("causal", "sliding_window", "document"):
        yield call(spec, "attention_fwd_sm90", pages)
    yield call("mla_decoupled", None, "dtype=bf16,h=16,q=900,kv=4096,d=128,d2=64,d_v=128,seqs=4,page=64,cu_q=i32")
    for spec, template in (("gated_delta", "linear_delta_sm90"), ("kda", "linear_keyed_delta"),
                           ("rwkv7", "linear_dplr"), ("gla", "linear_additive")):
        yield call(spec, template, KEPT)
    for spec, template in (("gated_delta", "linear_delta_sm90"), ("kda", "linear_keyed_delta")):
        yield call(spec, template, "dtype=bf16,h=4,t=2048,d=128,d_v=512")
    # runs of pieces
    for problem in (f"{LONG},h=16", f"{LONG},h=32,h_k=16", f"{LONG},h=8,h_k=4", "dtype=bf16,b=1,h=4,t=9000,d=64",
                    "dtype=bf16,b=3,h=5,t=2304,d=128,d_v=256", "dtype=bf16,b=1,h=4,h_k=2,t=20000,d=128,seqs=6"):
        yield call("gated_delta", RUNS, problem)
    for name in ("soft", "some", "cut", "threshold", "falls", "grows", "alike"):
        for sizes in ("h=8,h_k=4,t=10000,d=64,d_v=128", "h=4,t=20000,d=64,seqs=6", "h=40,t=4000,d=64",
                      "h=60,t=4000,d=64"):
            yield call(str(GATED_SPECS / f"gated_{name}.lua"), RUNS, f"dtype=bf16,b=1,{sizes}")


def times():
    """Each: spec, problem, arguments, the templates beside each other; None is what the plan takes."""
    for spec in ("full", "causal", "softcap", "alibi", "sliding_window", "document"):
        yield spec, f"dtype=bf16,{E4M3},b=1,h=16,q=16384,d=128", (), (FP8,)
        yield spec, "dtype=bf16,b=1,h=16,q=16384,d=128", (), (None,)
    for cache in ("k=f8e4m3,v=f8e4m3,", "k=i8,v=i8,", ""):
        for sizes in ("b=64,kv=4096", "b=8,kv=16384", "b=64,kv=4096,page=64"):
            yield "full", f"dtype=bf16,{cache}h=32,h_kv=8,q=1,d=128,{sizes}", (), (None,)
    for sizes in ("b=64,kv=4096", "b=8,kv=16384"):
        yield "fp8_cache", f"{NARROW},q=1,{sizes}", (), (None,)
    for length in (128, 512, 2048):
        yield "causal", f"{NARROW},b=1,q={length},kv=32768", (), (None, "attention_fwd_narrow")
    for heads in (16, 64, 128):
        latents = LATENT.replace("h=16", f"h={heads}")
        yield LATENT_SPEC, latents, (), (*LATENT_KERNELS, None)
        yield LATENT_SPEC, f"{latents},page=64", (), LATENT_KERNELS
        yield "mla_decoupled", latents.replace("k=f8e4m3,", ""), (), (None,)  # of 16 bits: twice the bytes
    latent = "dtype=bf16,b=1,h=16,h_kv=1,q=2048,d=576,d_v=512"
    yield "mla", latent, ("--pass", "backward"), (LATENT_BACK, "attention_bwd_slices")
    packed = "dtype=bf16,b=1,h=16,q=16384,seqs=12,d=192,d_v=128"
    yield "causal", packed, ("--pass", "backward"), (WIDE_BACK, "attention_bwd_sm80")
    for spec, template in (("gated_delta", "linear_delta_sm90"), ("kda", "linear_keyed_delta")):
        yield spec, KEPT, (), (template, None)
        yield spec, "dtype=bf16,h=16,t=4096,d=128,d_v=512", (), (template, None)
    for heads in ("h=16", "h=32,h_k=16", "h=8,h_k=4", "h=4", "h=24", "h=40"):
        for spec in ("gated_delta", str(GATED_SPECS / "gated_soft.lua"), str(GATED_SPECS / "gated_some.lua")):
            yield spec, f"{LONG},{heads}", (), (RUNS, PIECES)
    for problem in ("dtype=bf16,b=4,h=16,t=8192,d=128", "dtype=bf16,b=8,h=16,t=2048,d=128"):
        yield "gated_delta", problem, (), (PIECES,)


class Runner:
    def __init__(self, build, logs):
        self.lathe, self.logs = os.path.join(build, "lathe"), pathlib.Path(logs)

    def kept_places(self):
        """A file of where the state behind each token goes."""
        file = self.logs / "states_index.npy"
        if not file.exists():
            import numpy
            places = numpy.full((1, KEPT_TOKENS), -1, numpy.int32)
            places[0, KEPT_EVERY - 1::KEPT_EVERY] = numpy.arange(KEPT_TOKENS // KEPT_EVERY)
            numpy.save(file, places)
        return ["--input", f"states_index={file}"]

    def run(self, arguments, seconds):
        """What `lathe run` says as JSON; else its last words."""
        command = [self.lathe, "run", "--json", *arguments, *(self.kept_places() if KEPT in arguments else [])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return {"error": f"did not end within {seconds} s"}
        try:
            return json.loads(done.stdout)
        except ValueError:
            said = (done.stdout + done.stderr).strip().splitlines()
            return {"error": said[-1] if said else f"exit code {done.returncode}"}

    def prove(self, arguments):
        said = self.run([*arguments, "--verify"], 240)
        worst = max((v["relative_l2"] / v["bound"] for v in said.get("verify", [])), default=None)
        # A figure of `of_largest_gradient` is judged by lathe itself: "verified" is what counts.
        return {"call": shlex.join(arguments), "right": said.get("verified") is True, "of_bound": worst, "said": said}

    def time(self, spec, problem, arguments, template):
        said = self.run([*call(spec, template, problem, *arguments), "--repeat", "20"], 120)
        return {"spec": spec, "problem": problem, "template": template or "plan", "us": said.get("seconds", 0) * 1e6,
                "tflop": said.get("tflop_per_second"), "error": said.get("error")}


    def plan(self, arguments):
        command = [self.lathe, "explain", *arguments, "--arch", "sm_90a"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return True
        print("FAILED", shlex.join(arguments), done.stderr.strip())
        return False


def has_word(words, text):
    return not words or any(word in text for word in words)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("logs")
    parser.add_argument("--only", default="", help="rows whose text has one of these words, with commas")
    parser.add_argument("--no-times", action="store_true", help="prove alone")
    parser.add_argument("--no-proofs", action="store_true", help="time alone, what was proved before")
    parser.add_argument("--dry", action="store_true", help="plan alone")
    parser.add_argument("--jobs", type=int, default=4, help="processes that prove beside each other")
    options = parser.parse_args()
    words = [word for word in options.only.split(",") if word]
    runner = Runner(options.build, options.logs)
    if options.dry:
        every = [call(spec, template, problem, *more) for spec, problem, more, beside in times() for template in beside]
        return not all([runner.plan(row) for row in [*proofs(), *every]])
    runner.logs.mkdir(parents=True, exist_ok=True)
    runner.kept_places()  # ahead of processes beside each other
    rows = [row for row in (() if options.no_proofs else proofs()) if has_word(words, shlex.join(row))]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        proved = list(pool.map(runner.prove, rows))
    for at, row in enumerate(proved):
        if not row["right"]:
            (runner.logs / f"unproven-{at}.json").write_text(json.dumps(row, indent=1))
        bound = "" if row["of_bound"] is None else f"{row['of_bound']:.2f} of the bound"
        print("right " if row["right"] else "FAILED", row["call"], bound or row["said"].get("error", ""))
    timed = []
    for spec, problem, arguments, templates in () if options.no_times else times():
        for template in templates:
            if has_word(words, shlex.join([*call(spec, template, problem, *arguments)])):
                timed.append(row := runner.time(spec, problem, arguments, template))
                rate = f"{row['tflop']:.0f} TFLOP/s" if row["tflop"] else row["error"] or ""
                print(f"{row['us']:10.1f} us  {rate:>14}  {row['template']:26} {spec} {problem}", flush=True)
    (runner.logs / "unproven.json").write_text(json.dumps({"proved": proved, "timed": timed}, indent=1))
    wrong = sum(not row["right"] for row in proved) + sum(row["error"] is not None for row in timed)
    print(f"{len(proved) + len(timed) - wrong} right, {wrong} not; {runner.logs}/unproven.json")
    return wrong > 0


if __name__ == "__main__":
    raise SystemExit(main())
