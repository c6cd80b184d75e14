#!/usr/bin/env python3
"""measured.py ROOT: measured figures must name the command that reproduces them. Prints each violation; exits with 1 if any.

  1. Each section of docs/benchmarks.md that has a table, and each line that begins "Taken by", has a command in code, a
     date, a processor and a commit. In a table with a column "taken by" each row has a command, a date and a commit.
  2. The NAME of a command `tools/benchmark NAME` is known to tools/benchmark.
  3. A page names tools/benchmark as the source of each table that tools/benchmark --tables prints.
"""

import pathlib
import re
import sys

PAGE = "docs/benchmarks.md"
TAKEN = re.compile(r"^Taken by .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^\|.*\|\n\|[-|: ]+\|\n(?:\|.*\|\n?)*", re.MULTILINE)
COMMAND = re.compile(r"`([^`]*(?:tools/|build/|--gtest_filter|ctest)[^`]*)`")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
COMMIT = re.compile(r"\bcommit\s+[0-9a-f]{7,40}\b")
PROCESSOR = re.compile(r"\b(?:AMD|Intel|machine\s+[A-Z]|not\s+recorded)\b")
NAME = re.compile(r"`(?:[A-Z_]+=\S+ )?tools/benchmark ([a-z][\w-]*)")


def lacking(text, wanted):
    return [name for name, pattern in wanted.items() if not pattern.search(text)]


def bad_lines(page, text):
    wanted = {"command": COMMAND, "date": DATE, "processor": PROCESSOR, "commit": COMMIT}
    for line in TAKEN.findall(text):
        for name in lacking(line, wanted):
            yield f"{page}: no {name} in: {line.splitlines()[0][:80]}"


def bad_rows(page, text):
    for table in TABLE.findall(text):
        head, _, *rows = table.strip().splitlines()
        if not re.search(r"\| taken by \|$", head):
            continue
        for row in rows:
            for name in lacking(row.rsplit("|", 2)[1], {"command": COMMAND, "date": DATE, "commit": COMMIT}):
                yield f"{page}: no {name} in the row: {row[:60]}"


def bad_sections(page, text):
    for section in re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]:
        tables = TABLE.findall(section)
        known = all(re.search(r"\| (?:taken by|machine|page) \|", table.splitlines()[0]) for table in tables)
        if tables and not known and not TAKEN.search(section):
            yield f"{page}: no line \"Taken by\" in the section {section.splitlines()[0]}"


def violations_of(pages, names, tables):
    """Yields violations. pages: texts by path. names: those known to tools/benchmark. tables: the names with a table."""
    taken = set()
    for page, text in pages.items():
        yield from bad_lines(page, text)
        yield from bad_rows(page, text)
        if page == PAGE:
            yield from bad_sections(page, text)
        yield from (f"{page}: tools/benchmark knows no {name}" for name in NAME.findall(text) if name not in names)
        for line in [*TAKEN.findall(text), *TABLE.findall(text)]:
            taken.update(NAME.findall(line))
    yield from (f"no page says that a table was taken by tools/benchmark {name}" for name in tables if name not in taken)


def main():
    root = pathlib.Path(sys.argv[1])
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(root / "tools/bench"))
    import catalogue
    import tables
    paths = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    pages = {path.relative_to(root).as_posix(): path.read_text() for path in paths}
    found = list(violations_of(pages, catalogue.entries(), tables.TABLES))
    for violation in found:
        print(violation)
    print(f"{len(pages)} pages, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
