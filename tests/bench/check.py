#!/usr/bin/env python3
"""check.py: compare.py from end to end without a GPU and without torch: small sizes on the host device, with standin.py.

    python3 tests/bench/check.py --library build/liblathe.so

Every row must run, agree with its float64 formula, and so must the peers; a wrong output, a missing bar and a peer that
does not run must be seen as what they are. Exit code 77: NumPy is not here.
"""

import argparse
import contextlib
import io
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:
    import standin
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
standin.install()

import cases  # noqa: E402
import compare  # noqa: E402
import plot  # noqa: E402
import report  # noqa: E402
import results  # noqa: E402
import rows as rows_module  # noqa: E402
import timer  # noqa: E402

failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print(f"FAILED {what}")


class Once(timer.Timer):
    """Two samples of one call: what is slow or fast does not matter here."""

    def __init__(self, *_):
        super().__init__(2, 0.0, 1e-9)

    def measure(self, calls):
        samples = {name: [self.burst(call, 1) for _ in range(2)] for name, call in calls.items()}
        return {name: {"ms": s[0], "min": min(s), "max": max(s)} for name, s in samples.items()}


def run(options, folder, *more):
    code = compare.main(["--library", options.library, "--device", "-1", "--shrink", "200", "--cache", "", "--out", folder,
                         "--verbose", *more])
    with open(os.path.join(folder, "compare.json"), encoding="utf-8") as file:
        return code, json.load(file)


HERE = os.path.dirname(os.path.abspath(__file__))


def text_of(*path):
    with open(os.path.join(HERE, *path), encoding="utf-8") as file:
        return file.read()


def shipped(kind):
    names = [name for name in os.listdir(os.path.join(HERE, "..", "..", "specs")) if name.endswith(".lua")]
    return {name[:-4] for name in names if f"\nreturn {kind} {{" in text_of("..", "..", "specs", name)}


def check_every_spec():
    """A spec that ships has a row, or a reason why it has none."""
    have, named = {op.spec for op in rows_module.OPERATORS}, set(rows_module.WITHOUT_ROW)
    of_rows = shipped("rowwise")
    expect(have == of_rows - named, f"a row or a reason for every shipped row-wise spec: {have ^ (of_rows - named)}")
    maps = text_of("maps.py")
    left = {spec for spec in shipped("elementwise") if f'"{spec}"' not in maps}
    expect(left == named - of_rows, f"a row or a reason for every shipped element-wise spec: {left ^ (named - of_rows)}")
    expect(all(rows_module.WITHOUT_ROW.values()), "a reason is a sentence")


def check_rows(options, folder):
    tables = os.path.join(folder, "RESULTS.md")
    code, result = run(options, folder, "--results", tables)
    rows = {row["name"]: row for row in result["rows"]}
    check_tables(results.parse(text_of(tables)))
    expect(code == 0, "all rows run and are right")
    groups = [row["group"] for row in result["rows"]]
    names = ("plain", "mods", "gqa", "dims", "f32", "rowwise", "grad", "grad_mods", "grad_rows", "rows_all", "rows_lengths")
    wanted = [18, 9, 1, 12, 8, 3, 18, 6, 3, 2 * len(rows_module.OPERATORS), 18]
    expect([groups.count(g) for g in names] == wanted, f"the rows: {groups}")
    for name, row in rows.items():
        expect("failed" not in row and row["error"] < 5e-3, f"{name}: {row.get('failed', row.get('error'))}")
        expect(set(row["modes"]) == {"burst", "sustained"}, f"{name}: both modes")
        for peer, error in row.get("peer_errors", {}).items():
            expect(error < 5e-3, f"{name}: {peer} computes the same ({error})")
    seen = {(c["peer"], c["bar"]) for row in result["rows"] for c in row["checks"]}
    expect({("cudnn", 1.05), ("cudnn", 1.15), ("plain", 0.9), ("plain", 0.75), ("plain", 0.8), ("plain", 1.03),
            ("plain", 0.95), ("flex", 1.8), ("flex", 2.5), ("copy", 0.92), ("cudnn", 1.08), ("cudnn", 1.0),
            ("flex", 1.0), ("flex", 1.5), ("atomics", 0.78), ("copy", 0.85), ("copy", 0.88), ("copy", 0.8), ("torch.compile", 1.0), ("torch.compile", 1.4),
            ("torch.compile", 2.0)} == seen, f"the bars: {seen}")
    learned = {name for row in result["rows"] if "backward" in row["name"] for name in row.get("errors", ())}
    expect({"dq", "dk", "dv", "dslopes", "dtable", "dx", "dweight", "dbias", "dresidual", "dgate"} == learned, f"gradients: {learned}")
    expect([row["same_bits"] for row in result["rows"] if "same_bits" in row] == [True], "the same bits twice")
    uneven = [row for row in result["rows"] if "D192/128" in row["name"]]
    expect(uneven and all("No available kernel" in row["notes"]["flash"] for row in uneven), "a peer that does not run is named")
    expect([(m["group"], m["rows"]) for m in result["means"]] == [("plain", 18)] * 2 + [("grad", 18)] * 2, "means")
    with open(os.path.join(folder, "compare.md"), encoding="utf-8") as file:
        table = file.read()
    expect(all(f"| {name} | burst |" in table for name in rows), "every row stands in the table")
    expect("geometric mean over cuDNN of 18 plain rows" in table, "the mean stands below it")


def check_tables(tables):
    """What compare.py wrote into the tables of results.py."""
    expect(list(tables) == ["attention", "rows", "row lengths"], f"the tables: {list(tables)}")
    attention, of_rows, lengths = (tables[name].rows for name in ("attention", "rows", "row lengths"))
    for case, column, cell in (("causal D128 forward", "S 24", r"\d+ / \d+ \(cudnn [\d.]+ / [\d.]+\)"),
                               ("alibi D128 forward", "S 40", r"\d+ / \d+ \(plain .*, flex [\d.]+ / [\d.]+\)")):
        expect(re.fullmatch(cell, attention.get(case, {}).get(column, "")), f"{case}: {attention.get(case)}")
    expect({"causal D64 f32 backward", "causal H2/1 D128 forward", "causal D128 deterministic backward"} <= set(attention), f"cases: {list(attention)}")
    expect({op.spec for op in rows_module.OPERATORS} <= set(of_rows), f"a case for each spec of rows: {list(of_rows)}")
    expect(all({"forward", "backward"} <= set(row) for row in of_rows.values()), "both passes in one row")
    expect(set(lengths["softmax forward"]) == {"40", "96", "100", *results.STAMP}, f"a column for each length: {lengths}")


def check_wrong_results(options, folder):
    """A formula that differs from the kernel by a little is seen, and so is a row that cannot run."""
    right = cases.VARIANTS["alibi"].score
    cases.VARIANTS["alibi"].score = lambda s, h, q, kv, x: right(s, h, q, kv, x) + 0.05 * (kv % 2)
    code, result = run(options, folder, "--only", "alibi B2 H2 S40 D128", "--mode", "burst")
    cases.VARIANTS["alibi"].score = right
    expect(code == 1 and len(result["rows"]) == 1 and not result["rows"][0]["right"], "a wrong output is WRONG")
    slope = cases.VARIANTS["softcap"].slope
    cases.VARIANTS["softcap"].slope = lambda s: 1.05 - 0.3 * slope(s)
    code, result = run(options, folder, "--only", "softcap B2 H2 S40 D128 backward", "--mode", "burst")
    cases.VARIANTS["softcap"].slope = slope
    expect(code == 1 and len(result["rows"]) == 1 and result["rows"][0]["errors"]["dv"] < 5e-3 <
           result["rows"][0]["errors"]["dq"], "a wrong derivative is WRONG")
    op = rows_module.BY_SPEC["rms_norm"]
    formula, op.formula = op.formula, lambda x, p: {"y": rows_module.rms(x) * (1.02 * p["weight"] + 0.02 * x)}
    code, result = run(options, folder, "--only", "rows_all rms_norm 40", "--mode", "burst")
    op.formula = formula
    expect(code == 1 and len(result["rows"]) == 2 and not any(row["right"] for row in result["rows"]), "a wrong row is WRONG, and its gradient")
    spec = cases.VARIANTS["relu"].spec
    cases.VARIANTS["relu"].spec = "no_such_spec"
    code, result = run(options, folder, "--only", "relu B2", "--mode", "burst")
    cases.VARIANTS["relu"].spec = spec
    expect(code == 1 and "no_such_spec" in result["rows"][0]["failed"], "a row that fails is named")


def check_peers(options, folder):
    """Peers that need wheels: one sentence where these are not here; else rows show them, or why they do not."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = compare.main(["--peers", "fa4,flex_fa4"])
    one = len(said.getvalue().splitlines()) == 1 and "flash-attn-4" in said.getvalue()
    expect(code == 77 and one, f"{code} {said.getvalue()}")
    standin.install_fa4()
    import fa4
    fa4.value_at = lambda table, head, place: table[head, place]  # of all pairs at once, not of a thread's one
    tables = os.path.join(folder, "PEERS.md")
    only = "plain causal,plain full,mods,grad causal,192/128"
    code, result = run(options, folder, "--only", only, "--no-flex", "--peers", "fa4,flex_fa4", "--results", tables)
    rows = {row["name"]: row for row in result["rows"]}
    expect(code == 0 and len(rows) == 37, f"rows beside further peers: {code}, {len(rows)}")
    for name, row in rows.items():
        learned = cases.VARIANTS[name.split()[0]].learned
        whose = {peer + "".join(f" -d{x}" for x in learned if "backward" in name) for peer in ("fa4", "flex_fa4")}
        if name.split()[0] in ("sigmoid", "relu", "retention") or "deterministic" in name:
            whose = set()
        whose = {peer for peer in whose if peer != "fa4" or not ("prefix_lm" in name or "D192/128" in name)}
        right = all(row["peer_errors"][peer] < 5e-3 for peer in whose)
        expect(right and all(whose <= set(mode["rates"]) for mode in row["modes"].values()),
               f"{name}: {whose} are beside it: {row['peer_errors']} {row['notes']}")
        expect({c["peer"] for c in row["checks"] if c["bar"] == 0.0} == whose, f"{name}: peers without bar are shown")
    refusal = rows["prefix_lm B2 H2 S40 D128"]["notes"]["fa4"]
    expect("has no option that says prefix_lm" in refusal, "a peer that refuses is named")
    cell = results.parse(text_of(tables))["attention"].rows["relative_bias D128 backward"]["S 40"]
    expect(re.fullmatch(r"\S+ / \S+ \(fa4 -dtable [\d.]+, flex_fa4 -dtable [\d.]+\)", cell), f"a cell of peers: {cell}")
    right = fa4.flash_attn_func
    fa4.flash_attn_func = lambda *a, **b: [right(*a, **b)[0] * 1.1]
    code, result = run(options, folder, "--only", "plain full B1 H2 S81 D64", "--no-flex", "--peers", "fa4")
    fa4.flash_attn_func = right
    forward = result["rows"][0]
    named = "wrong, error 0.1" in forward["notes"]["fa4"] and "fa4" not in forward["modes"]["burst"]["rates"]
    expect(code == 0 and named, f"a peer that is wrong is named, and has no figure: {forward}")


def check_without_torch(folder):
    """A torch that cannot be imported: one sentence and 77; --help is help."""
    with open(os.path.join(folder, "torch.py"), "w", encoding="utf-8") as file:
        file.write("raise ImportError(\"No module named 'torch'\")\n")
    for arguments, code in (([], 77), (["--only", "plain", "--quick"], 77), (["--help"], 0), (["--no-such-option"], 2),
                            (["--peers", "fa5"], 2)):
        ran = subprocess.run([sys.executable, os.path.join(HERE, "compare.py"), *arguments], env={**os.environ, "PYTHONPATH": folder},
                             capture_output=True, text=True, check=False, timeout=60)
        said = f"compare.py {' '.join(arguments)} without torch: {ran.returncode}: {ran.stdout}{ran.stderr}"
        expect(ran.returncode == code and "Traceback" not in ran.stderr, said)
        if code == 77:
            expect(len(ran.stdout.splitlines()) == 1 and "No module named 'torch'" in ran.stdout and "check.py" in ran.stdout and
                   not ran.stderr, said)
        if code == 0:
            expect("--library" in ran.stdout and "--only" in ran.stdout, said)


def check_work():
    problem = cases.Problem("causal", 2, 4, 10, 8, d_v=16)
    problem.allocate(0)
    expect(problem.live_pairs() == 55 and problem.flops() == 2 * 2 * 4 * 55 * 24, "work of causal attention")
    expect(cases.Problem("causal", 2, 32, 8192, 128, h_kv=8).title() == "causal B2 H32/8 S8192 D128", "titles")
    ratios = [{"group": "plain", "checks": [{"mode": "burst", "peer": "cudnn", "ratio": r, "bar": 1.05}]} for r in (0.5, 8.0)]
    mean = report.means(ratios, {"plain": 1.18})[0]
    expect(math.isclose(mean["mean"], 2.0) and mean["least"] == 0.5, "geometric mean")


def check_plot(folder):
    with open(os.path.join(folder, "compare.png"), "rb") as file:
        check_png(file.read(), "compare.png")
    with open(os.path.join(folder, "lengths.png"), "rb") as file:
        check_png(file.read(), "lengths.png")
    curves = plot.curves_of([{"name": f"softmax 4x{n}", "checks": [{"ratio": r}]} for n, r in ((256, 0.9), (128, 0.5), (512, 0.5))])
    pixels, width, height = check_png(plot.draw_curves(curves, 0.8, "a title"), "a curve drawn here")
    line = [i // width for i in range(width * height) if pixels[3 * i:3 * i + 3] == bytes(plot.PALETTE[0]) and i % width < 780]
    expect(curves == {"softmax": [(128, 0.5), (256, 0.9), (512, 0.5)]} and (min(line), max(line)) == (113, 217), "a curve goes up and down")
    drawn = plot.draw([("a row TB/s", [("ours", 4.0, 1.0), ("copy", 2.0, 0.5)])], "a title")
    pixels, width, height = check_png(drawn, "a PNG drawn here")
    blue = sum(pixels[3 * i:3 * i + 3] == bytes(plot.COLOURS["ours"]) for i in range(width * height))
    grey = sum(pixels[3 * i:3 * i + 3] == bytes(plot.COLOURS["copy"]) for i in range(width * height))
    expect(blue == 2 * grey > 0, "bars are as long as their rates")


def check_png(data, what):
    expect(data[:8] == b"\x89PNG\r\n\x1a\n", f"{what}: signature")
    at, chunks = 8, {}
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        expect(zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0], f"{what}: checksum")
        chunks[kind] = chunks.get(kind, b"") + body
        at += 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = zlib.decompress(chunks[b"IDAT"])
    if len(lines) != height * (1 + 3 * width):
        return b"", width, height  # matplotlib's, with an alpha channel
    return b"".join(lines[y * (1 + 3 * width) + 1:(y + 1) * (1 + 3 * width)] for y in range(height)), width, height


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", default="build/liblathe.so")
    options = parser.parse_args()
    cases.WINDOW = cases.PREFIX = 16  # so that they cut something at these lengths
    cases.VARIANTS["window"].scalars = {"window": 16}
    timer.Timer, timer.timers = Once, lambda quick: {"burst": Once(), "sustained": Once()}
    check_work()
    check_every_spec()
    with tempfile.TemporaryDirectory() as folder:
        check_without_torch(folder)
        check_rows(options, folder)
        check_plot(folder)
        check_wrong_results(options, folder)
        check_peers(options, folder)
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
