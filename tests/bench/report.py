"""report.py: rows of figures as tables: a line for each bar of each row, and the means."""

import math
import re
import subprocess
import time

import torch

HEADER = ("case", "mode", "ours", "beside", "its", "ratio", "bar", "verdict")

# Of results.py's tables: what their cases are, and cells. Bars are in README.md.
ABOUT = {"attention": "`compare.py`, TFLOP/s of live pairs in bursts / sustained (times that of a peer)",
         "rows": "`compare.py`, times the bandwidth of a copy, and the speed of torch.compile",
         "row lengths": "`compare.py --only rows_lengths`, times the bandwidth of a copy"}


def machine():
    """What the figures depend on."""
    driver = "unknown"
    try:
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader"],
                                capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        pass
    return {"gpu": torch.cuda.get_device_name(0), "driver": driver, "torch": torch.__version__,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "date": time.strftime("%Y-%m-%d")}


def means(rows, bars):
    """Geometric means over cuDNN, by group and mode; bars: {group: bar}."""
    ratios = {}
    for row in rows:
        for check in row.get("checks", ()) if row["group"] in bars else ():
            if check["peer"] == "cudnn":
                ratios.setdefault((row["group"], check["mode"]), []).append(check["ratio"])
    return [{"group": group, "mode": mode, "rows": len(r), "mean": math.exp(sum(map(math.log, r)) / len(r)),
             "least": min(r), "bar": bars[group]} for (group, mode), r in ratios.items()]


def verdict(row, check):
    if not row["right"]:
        return "WRONG"
    if not check["bar"]:
        return "shown"
    return "ok" if check["ratio"] >= check["bar"] else "MISS"


def lines_of(row):
    """Cells of each line of a row."""
    if "failed" in row:
        return [(row["name"], "-", "-", "-", "-", "-", "-", "FAILED")]
    digits = 0 if row["unit"] == "TFLOP/s" else 2
    lines = []
    for check in row["checks"] or [None]:
        mode = check["mode"] if check else next(iter(row["modes"]))
        rates = row["modes"][mode]["rates"]
        ours = f"{rates['ours']:.{digits}f}"
        if not check:
            lines.append((row["name"], mode, ours, "-", "-", "-", "-", "no peer" if row["right"] else "WRONG"))
            continue
        bar = f"{check['bar']:.2f}" if check["bar"] else "-"
        lines.append((row["name"], mode, ours, check["peer"], f"{rates[check['peer']]:.{digits}f}", f"{check['ratio']:.2f}",
                      bar, verdict(row, check)))
    return lines


def of_modes(row, figure):
    """figure(mode) of each mode, burst first."""
    return " / ".join(figure(mode) for mode in sorted(row["modes"]))


def ratios(row):
    """[peer and how many times its speed], burst first; of a peer without bar bursts alone, for want of room."""
    of = {}
    for check in sorted(row["checks"], key=lambda check: check["mode"]):
        if check["bar"] or check["peer"] not in of:
            of.setdefault(check["peer"], []).append(f"{check['ratio']:.2f}")
    return [f"{peer} {' / '.join(figures)}" for peer, figures in of.items()]


def place_of(row):
    """Table, case and column: rows that differ in their length, or of rows in their pass, are one case."""
    name = row["name"].replace(" backward", "")
    way = "backward" if " backward" in row["name"] else "forward"
    if row["unit"] == "TFLOP/s":
        sizes = re.search(r" B\d+( H\d+\S*) S(\d+)", name)
        heads = sizes[1] if "/" in sizes[1] else ""
        return "attention", f"{name[:sizes.start()]}{heads}{name[sizes.end():]} {way}", f"S {sizes[2]}"
    if row["group"] == "rows_lengths":
        return "row lengths", f"{name.split(' ')[0]} {way}", name.split("x")[-1]
    if row["group"] in ("rows_packed", "optimizers"):
        return "rows", name, way
    heads = re.search(r" H\d+/\d+", name)  # of one size each, but for rope
    return "rows", name.split(" ")[0] + (heads[0] if heads else ""), way


def tables(rows, template=""):
    """{table: {case: {column: cell}}} of the rows that are right and have a bar, for results.py."""
    made = {}
    for row in rows:
        if "failed" in row or not row["right"] or not row["checks"] or row["group"] in ("rowwise", "grad_rows"):  # rows_all has these
            continue
        table, case, column = place_of(row)
        cell = ", ".join(ratios(row)).removeprefix("copy ")
        if table == "attention":
            rate = of_modes(row, lambda mode, r=row: f"{r['modes'][mode]['rates']['ours']:.0f}")
            cell = f"{rate} ({cell})"
        case += f" by {template}" if template else ""
        made.setdefault(table, {}).setdefault(case, {})[column] = cell
    return made


def closing(rows, summary):
    missed = sum(not row["met"] for row in rows)
    lines = [f"{s['mode']}: geometric mean over cuDNN of {s['rows']} {s['group']} rows {s['mean']:.3f} (bar {s['bar']:.2f}: "
             f"{'ok' if s['mean'] >= s['bar'] else 'MISS'}), least {s['least']:.3f}" for s in summary]
    return lines + [f"{len(rows)} rows, {len(rows) - missed} at all of their bars, {missed} below or failed; "
                    "TFLOP/s of the live part, row-wise TB/s"]


def text(rows, summary):
    lines = [HEADER] + [line for row in rows for line in lines_of(row)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    table = ["  ".join(c.ljust(w) if i in (0, 1, 3, 7) else c.rjust(w)
                       for i, (c, w) in enumerate(zip(line, widths))).rstrip() for line in lines]
    return "\n".join(table + closing(rows, summary))


def markdown(rows, summary, about):
    lines = [f"Measured on {about['gpu']} ({about['driver']}), torch {about['torch']}, CUDA {about['cuda']}, "
             f"cuDNN {about['cudnn']}, {about['date']}.", "",
             "| " + " | ".join(HEADER) + " | error | all figures |", "|---" * (len(HEADER) + 2) + "|"]
    for row in rows:
        error = f"{row['error']:.1e}" if "error" in row else "-"
        for cells in lines_of(row):
            rates = row["modes"][cells[1]]["rates"] if "modes" in row else {}
            figures = ", ".join(f"{peer} {rate:.4g}" for peer, rate in rates.items()) or row.get("failed", "")
            lines.append("| " + " | ".join(cells) + f" | {error} | {figures} |")
    return "\n".join(lines + [""] + closing(rows, summary)) + "\n"
