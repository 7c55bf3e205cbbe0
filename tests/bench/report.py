"""report.py: rows of figures as tables: a line for each bar of each row, and the means."""

import math
import subprocess
import time

import torch

HEADER = ("case", "mode", "ours", "beside", "its", "ratio", "bar", "verdict")


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
        met = check["ratio"] >= check["bar"]
        lines.append((row["name"], mode, ours, check["peer"], f"{rates[check['peer']]:.{digits}f}", f"{check['ratio']:.2f}",
                      f"{check['bar']:.2f}", "WRONG" if not row["right"] else "ok" if met else "MISS"))
    return lines


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
