#!/usr/bin/env python3
"""results_check.py: results.py on made data, without a GPU or NumPy, and RESULTS.md as it is in the tree."""

import argparse
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import results  # noqa: E402

MOST_LINES = 450
OLD = {"card": "H100", "date": "2026-01-01", "commit": "aaaaaaa"}
NEW = {"card": "H200", "date": "2026-02-02", "commit": "bbbbbbb"}
failures = []


def expect(condition, what):
    if not condition:
        failures.append(what)
        print(f"FAILED {what}")


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def table_of(path, name):
    return results.parse(text_of(path))[name]


def check_replaces_one_row(path):
    results.put(path, "first", {"a": {"ms": "1", "to x": "2.0"}, "b": {"ms": "3", "to x": "4.0"}}, OLD, "What it is,\n  in ms.")
    results.put(path, "second", {"a": {"us": "5"}}, OLD)
    before = text_of(path).splitlines()
    results.put(path, "first", {"b": {"ms": "6", "to x": "7.0"}}, NEW)
    after = text_of(path).splitlines()
    changed = [(x, y) for x, y in zip(before, after) if x != y]
    expect(len(before) == len(after) and changed == [("| b | 3 | 4.0 | H100 | 2026-01-01 | aaaaaaa |",
                                                      "| b | 6 | 7.0 | H200 | 2026-02-02 | bbbbbbb |")],
           f"a new row takes the place of the old one, and nothing else changes: {changed}")
    expect("| What it is, in ms. | ms | to x | card | date | commit |" in after, "what the table is about stays")


def check_columns(path):
    results.put(path, "first", {"b": {"GB": "8"}}, NEW)
    expect(table_of(path, "first").rows["b"] == {"ms": "6", "to x": "7.0", "GB": "8", **NEW}, "runs of one stamp are one row")
    results.put(path, "first", {"b": {"ms": "9"}}, OLD)
    b = table_of(path, "first").rows["b"]
    expect((b["ms"], b["to x"], b["commit"]) == ("9", "-", "aaaaaaa"), f"a figure does not stand beside the stamp of another: {b}")
    results.put(path, "first", {"c": {"ms": "1|2"}}, NEW)
    expect(list(table_of(path, "first").rows) == ["a", "b", "c"], "a new case is the last row")
    expect(table_of(path, "first").rows["c"]["ms"] == "1/2", "a cell has no mark of a table in it")
    expect(table_of(path, "second").rows == {"a": {"us": "5", **OLD}}, "other tables stay")


def check_wide(path):
    """A table that is too wide is written in parts, and read as one."""
    wide = {column: column * 20 for column in "vwxyz"}
    results.put(path, "wide", {"all": wide, "last": {"z": "1"}, "first": {"v": "2"}}, OLD)
    lines = text_of(path).split("## wide\n")[1].splitlines()
    expect(max(map(len, lines)) <= results.MOST_COLUMNS, f"no line is wider than {results.MOST_COLUMNS} columns: {lines}")
    expect(sum(line.startswith("| case |") for line in lines) == 2, f"two parts: {lines}")
    expect([line.split(" ")[1] for line in lines if " 2026" in line] == ["all", "first", "all", "last"], f"a part has rows with figures: {lines}")
    rows = table_of(path, "wide").rows
    expect(rows["all"] == {**wide, **OLD} and rows["last"]["v"] == "-", f"both parts are read: {rows}")
    expect(results.render(results.parse(text_of(path))) == text_of(path), "what is read is written as it was")


def check_command(path):
    command = [sys.executable, os.path.join(results.HERE, "results.py"), "by hand", "a case", "ms=1.5",
               "--card", "NVIDIA H100 80GB HBM3", "--file", path]
    ran = subprocess.run(command, env={**os.environ, "LATHE_COMMIT": "ccccccc"}, check=False, timeout=60)
    row = table_of(path, "by hand").rows.get("a case", {}) if ran.returncode == 0 else {}
    expect((row.get("ms"), row.get("card"), row.get("commit")) == ("1.5", "H100", "ccccccc"), f"a row by hand: {row}")


def check_option(path):
    parser = argparse.ArgumentParser()
    results.add_option(parser)
    results.write(parser.parse_args([]), "none", {"a": {"ms": 1}}, "H100")
    expect("none" not in results.parse(text_of(path)), "without --results nothing is written")
    results.write(parser.parse_args(["--results", path]), "some", {"a": {"ms": 1}}, "H100")
    expect(table_of(path, "some").rows["a"]["ms"] == "1", "with --results it is")


def check_tree():
    text = text_of(results.FILE)
    tables = results.parse(text)
    expect(results.render(tables) == text, "RESULTS.md is as results.py writes it")
    expect(len(text.splitlines()) <= MOST_LINES, f"RESULTS.md has at most {MOST_LINES} lines")
    wide = [line for line in text.splitlines() if len(line) > results.MOST_COLUMNS]
    expect(not wide, f"RESULTS.md has at most {results.MOST_COLUMNS} columns: {wide}")
    bare = [f"{t.name}: {case}" for t in tables.values() for case, row in t.rows.items()
            if not all(row.get(part) for part in results.STAMP)]
    expect(not bare, f"a row has its card, date and commit: {bare}")
    sources = "".join(text_of(os.path.join(results.HERE, name)) for name in os.listdir(results.HERE)
                      if name == "README.md" or name.endswith(".py"))
    strange = [t for t in tables if f'"{t}"' not in sources and f"`{t}`" not in sources]
    expect(not strange, f"a table is one that some script writes, or README.md names: {strange}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "RESULTS.md")
        for check in (check_replaces_one_row, check_columns, check_wide, check_command, check_option):
            check(path)
    check_tree()
    print(f"results: {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
