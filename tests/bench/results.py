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
MOST_COLUMNS = 140  # of a line: a wider table is written in parts, below each other
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

    def has(self, case, columns):
        return any(self.rows[case].get(c, NOT_MEASURED) != NOT_MEASURED for c in columns)

    def part(self, columns):
        """Lines of a table with these columns, and of what has a figure in one of them."""
        header = (self.about, *columns, *STAMP)
        rows = [header, *((case, *(row.get(c, NOT_MEASURED) for c in header[1:]))
                          for case, row in self.rows.items() if self.has(case, columns))]
        text = ["| " + " | ".join(row) + " |" for row in rows]
        return [text[0], "|---" * len(header) + "|", *text[1:]]

    def parts(self):
        """Columns, as many in each part as lines of MOST_COLUMNS have room for."""
        parts = []
        for column in self.columns:
            if not any(self.has(case, [column]) for case in self.rows):
                continue
            if parts and max(map(len, self.part([*parts[-1], column]))) <= MOST_COLUMNS:
                parts[-1].append(column)
            else:
                parts.append([column])
        return parts

    def lines(self):
        parts = self.parts()
        first = {case: next((i for i, part in enumerate(parts) if self.has(case, part)), 0) for case in self.rows}
        self.rows = {case: self.rows[case] for case in sorted(self.rows, key=first.get)}  # as they will be read
        return [f"## {self.name}", *"\n\n".join("\n".join(self.part(part)) for part in parts).split("\n")]


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_rows(table, header, lines):
    table.columns += [column for column in header if column not in STAMP]
    for line in lines:
        case, *cells = cells_of(line)
        table.rows.setdefault(case, {}).update(zip(header, cells))


def parse(text):
    """{name: Table} in their order, of what `render` wrote."""
    tables = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name, text = section.split("\n", 1)
        parts = [part.split("\n") for part in text.strip().split("\n\n")]
        tables[name] = Table(name, cells_of(parts[0][0])[0])
        for lines in parts:
            read_rows(tables[name], cells_of(lines[0])[1:], lines[2:])
        for row in tables[name].rows.values():
            row.update({column: row.get(column, NOT_MEASURED) for column in tables[name].columns})
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
