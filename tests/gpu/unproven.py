"""Kernels that no GPU has run yet and that are taken by their name alone: proves each, then times it beside what serves
the same call today. What is right and not slower is then taken by default: its switch goes, and its rows here.

    python3 tests/gpu/unproven.py BUILD LOGS [--only WORDS] [--no-times | --no-proofs]
    python3 tests/gpu/unproven.py BUILD LOGS --dry      # without a GPU: that a kernel can be planned for each row

BUILD holds lathe. WORDS, with commas: rows whose text has one of them. LOGS gets unproven.json and a log for each row
that failed. Each call is a process with a time limit, for a kernel that waits for ever. Exit code 0: all is right."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess

GATHERED, NARROW = "attention_fwd_gathered_sm90", "attention_fwd_narrow"
RUNS, PIECES = "linear_delta_runs_sm90", "linear_delta_sm90"
GATED_SPECS = pathlib.Path(__file__).parents[1] / "emulate/specs"
NEGATED = str(pathlib.Path(__file__).parents[1] / "specs/good/least_of_negated.lua")
LONG = "dtype=bf16,b=1,t=32768,d=128"


def call(spec, template, problem, *more):
    return [spec, *more, *(["--template", template] if template else []), "--problem", problem]


def proofs():
    yield call(NEGATED, None, "n=4099")  # no kernel of its own, but text that ptxas made wrong machine code of
    half = "dtype=f16,k=f8e4m3,v=f8e4m3,h=32,h_kv=8,d=128"  # weights beside the largest of their row
    for problem in (f"{half},q=1,b=8,kv=4096", f"{half},q=1,b=8,kv=4096,page=64", f"{half},b=2,q=700,kv=1500",
                    f"{half},b=2,q=700,page=64,most=24", "dtype=f16,h=16,h_kv=4,q=2000,d=64",
                    "dtype=f16,h=16,h_kv=4,q=2000,d=128", "dtype=f16,h=32,h_kv=8,q=1,kv=8192,d=128"):
        yield call("fp8_cache", None, problem)
    for narrow in ("f8e4m3", "f8e5m2", "i8"):
        for dtype, page in (("bf16", 1), ("f16", 16), ("bf16", 24), ("f16", 64), ("bf16", 256)):
            cache = f"dtype={dtype},k={narrow},v={narrow},page={page},most={-(-1500 // page)}"
            yield call("causal", GATHERED, f"{cache},b=3,h=8,h_kv=2,q=300,d=128,used_kv=i32")
            yield call("fp8_cache", GATHERED, f"{cache},seqs=5,h=8,h_kv=2,q=900,d=64,used_kv=i32")
    for cache in ("k=i8,v=f8e4m3", "v=f8e5m2", "k=f8e4m3"):
        for spec, dims in (("sigmoid", "d=256"), ("sliding_window", "d=192,d_v=128"), ("softcap", "d=128,d_v=512"),
                           ("alibi", "d=64")):
            yield call(spec, GATHERED, f"dtype=bf16,{cache},b=2,h=4,h_kv=2,q=500,kv=1024,page=64,{dims}")
    for problem in ("h=16,t=3000,d=128", "h=8,h_k=4,t=6000,d=128", "h=4,t=9000,d=64", "b=3,h=5,t=2304,d=64,d_v=128",
                    "h=4,h_k=2,t=12000,d=128,seqs=6"):
        yield call("gated_delta", RUNS, f"dtype=bf16,{problem}")
    for name in ("soft", "some", "cut", "threshold", "falls", "grows", "alike"):
        for sizes in ("h=8,h_k=4,t=10000,d=64,d_v=128", "h=4,t=20000,d=64,seqs=6", "h=40,t=4000,d=64",
                      "h=60,t=3500,d=64"):
            yield call(str(GATED_SPECS / f"gated_{name}.lua"), RUNS, f"dtype=bf16,b=1,{sizes}")


def times():
    """Each: spec, problem, arguments, the templates beside each other; None is what the plan takes."""
    cache = "dtype=bf16,k=f8e4m3,v=f8e4m3,h=32,h_kv=8,d=128"
    beside = (GATHERED, NARROW)
    for sizes in ("q=16", "q=32", "q=64", "q=128", "q=512", "q=2048", "q=8192", "b=16,q=64", "b=16,q=512"):
        for page in (16, 64):
            yield "causal", f"{cache},kv=32768,page={page},{sizes}", (), beside
    for spec in ("causal", "fp8_cache"):
        for sizes in ("seqs=8,q=16384,kv=2048", "b=1,q=16384,kv=16384", "b=8,q=2048,kv=2048", "seqs=64,q=8192,kv=8192"):
            yield spec, f"{cache},page=64,{sizes}", (), beside
    for heads in ("h=16", "h=32,h_k=16", "h=8,h_k=4", "h=4", "h=24", "h=40"):
        for spec in ("gated_delta", str(GATED_SPECS / "gated_soft.lua"), str(GATED_SPECS / "gated_some.lua")):
            yield spec, f"{LONG},{heads}", (), (RUNS, PIECES)


class Runner:
    def __init__(self, build, logs):
        self.lathe, self.logs = os.path.join(build, "lathe"), pathlib.Path(logs)

    def run(self, arguments, seconds):
        """What `lathe run` says as JSON; else its last words."""
        command = [self.lathe, "run", "--json", *arguments]
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
