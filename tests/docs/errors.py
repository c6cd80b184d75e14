#!/usr/bin/env python3
"""errors.py ROOT: every message in docs/errors.md must be in the sources. Prints each missing one; exits with 1 if any."""

import pathlib
import re
import sys

FOLDERS = ("base", "client", "collectives", "daemon", "tools", "training")
ROW = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
# The compiler joins adjacent literals. Between the arguments of a call any text may stand.
JOINED = re.compile(r'"\s*\n?\s*"')
BETWEEN = re.compile(r'",\s*"')


def texts_of(source):
    return BETWEEN.sub("", JOINED.sub("", source))


def missing(page, sources):
    texts = [texts_of(source) for source in sources]
    return [message for message in ROW.findall(page) if not any(message in text for text in texts)]


def main():
    root = pathlib.Path(sys.argv[1])
    sources = [file.read_text() for folder in FOLDERS for suffix in ("*.cc", "*.h")
               for file in (root / folder).rglob(suffix)]
    page = (root / "docs/errors.md").read_text()
    found = missing(page, sources)
    for message in found:
        print(f"docs/errors.md: no program says '{message}'")
    if not ROW.findall(page):
        print("docs/errors.md has no messages")
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
