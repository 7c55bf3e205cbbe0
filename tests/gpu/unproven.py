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

NEGATED = str(pathlib.Path(__file__).parents[1] / "specs/good/least_of_negated.lua")


def call(spec, template, problem, *more):
    return [spec, *more, *(["--template", template] if template else []), "--problem", problem]


def proofs():
    yield call(NEGATED, None, "n=4099")  # no kernel of its own, but text that ptxas made wrong machine code of


def times():
    """Each: spec, problem, arguments, the templates beside each other; None is what the plan takes."""
    return ()


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
