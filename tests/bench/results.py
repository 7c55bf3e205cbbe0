#!/usr/bin/env python3
"""results.py: the tables of RESULTS.md. A row is of one card, date and commit; a newer one takes its place.

    python3 tests/bench/results.py TABLE CASE COLUMN=CELL ... [--card H200] [--about TEXT] [--file FILE]

Benchmarks write their tables with `--results FILE` (add_option, write); the command above is for a row that another
tool has measured.
What was measured in several runs of one card, date and commit goes into one row; else a row loses what the new run has not measured,
since a row has one stamp. Rows of other cases stay, as do other tables.
"""

import argparse
import fcntl
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "RESULTS.md")
STAMP = ("card", "date", "commit")
NOT_MEASURED = "-"
TITLE = """# Figures

The newest figure of each row, written by the benchmarks (`results.py`, README.md); older ones, and what was tried, are
in [`log/`](log).
"""


class Table:
    def __init__(self, name, about="case"):
        self.name, self.about = name, about  # what the table is about: the heading of its cases
        self.columns = []  # of figures
        self.rows = {}     # case: {column: cell, or part of the stamp}

    def put(self, case, cells, stamp):
        """Takes the place of that case's row, or is the last one."""
        old = self.rows.get(case, {})
        same = all(old.get(part) == stamp[part] for part in STAMP)
        self.columns += [column for column in cells if column not in self.columns]
        self.rows[case] = {**(old if same else {}), **cells, **stamp}

    def lines(self):
        columns = [c for c in self.columns if any(row.get(c, NOT_MEASURED) != NOT_MEASURED for row in self.rows.values())]
        header = (self.about, *columns, *STAMP)
        rows = [header, *((case, *(row.get(c, NOT_MEASURED) for c in header[1:])) for case, row in self.rows.items())]
        text = ["| " + " | ".join(row) + " |" for row in rows]
        return [f"## {self.name}", text[0], "|---" * len(header) + "|", *text[1:]]


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_rows(table, header, lines):
    table.columns = [column for column in header if column not in STAMP]
    for line in lines:
        case, *cells = cells_of(line)
        table.rows[case] = dict(zip(header, cells))


def parse(text):
    """{name: Table} in their order, of what `render` wrote."""
    tables = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, *lines = section.splitlines()
        about, *header = cells_of(lines[0])
        tables[name] = Table(name, about)
        read_rows(tables[name], header, [line for line in lines[2:] if line.startswith("|")])
    return tables


def render(tables):
    return "\n".join([TITLE, *("\n".join(table.lines()) + "\n" for table in tables.values())])


def commit():
    """Of the tree: LATHE_COMMIT where it has no history; with a + where files have changed since."""
    def git(*arguments):
        return subprocess.run(["git", "-C", HERE, *arguments], capture_output=True, text=True, check=True).stdout.strip()
    if os.environ.get("LATHE_COMMIT"):
        return os.environ["LATHE_COMMIT"]
    try:
        return git("rev-parse", "--short=7", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return NOT_MEASURED


def card_of(device_name):
    """NVIDIA H100 80GB HBM3: H100."""
    return re.sub(r"^NVIDIA ", "", device_name).split(" ")[0]


def stamp_of(card):
    return dict(zip(STAMP, (card_of(card), time.strftime("%Y-%m-%d"), commit())))


def put(path, name, rows, stamp, about=""):
    """rows: {case: {column: cell}} into that table of that file."""
    with open(path, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # linear.py --errors writes from several processes
        file.seek(0)
        tables = parse(file.read())
        table = tables.setdefault(name, Table(name))
        table.about = " ".join(about.split()) or table.about
        for case, cells in rows.items():
            table.put(case, {column: str(cell).replace("|", "/") for column, cell in cells.items()}, stamp)
        file.truncate(0)
        file.write(render(tables))


def add_option(parser):
    parser.add_argument("--results", metavar="FILE", help="write the rows into the tables of this file (tests/bench/RESULTS.md)")


def write(options, name, rows, card, about=""):
    """What a benchmark calls when it is done; only where --results names a file."""
    if options.results and rows:
        put(options.results, name, rows, stamp_of(card), about)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("case")
    parser.add_argument("cells", nargs="+", metavar="COLUMN=CELL")
    parser.add_argument("--card", required=True)
    parser.add_argument("--about", default="")
    parser.add_argument("--file", default=FILE)
    options = parser.parse_args()
    cells = dict(cell.split("=", 1) for cell in options.cells if "=" in cell)
    if len(cells) != len(options.cells):
        parser.error("a cell is COLUMN=CELL")
    put(options.file, options.table, {options.case: cells}, stamp_of(options.card), options.about)


if __name__ == "__main__":
    sys.exit(main())
