#!/usr/bin/env python3
"""tools/gpu-verify/answers.py left FILE ID...: prints the questions that FILE, of geminid-gpu-verify --json, does not answer.
tools/gpu-verify/answers.py merge FILE NEW: replaces FILE's answers by NEW's answers to the same questions, and removes NEW.

A question without time counts as not answered. A verdict of "fail" is an answer.
"""

import json
import os
import pathlib
import sys

NO_TIME = "not run"  # the begin of the reason of a question without time


def read(path):
    """Returns the probes of a file and its data about the machine; nothing if there is no valid file."""
    try:
        said = json.loads(path.read_text())
    except (OSError, ValueError):
        return {"probes": []}
    return said


def answered(said):
    return {probe["id"] for probe in said["probes"] if not probe["reason"].startswith(NO_TIME)}


def merge(path, new):
    if not new.exists():
        return
    before, now = read(path), read(new)
    if now["probes"]:
        ids = answered(now) | ({probe["id"] for probe in now["probes"]} - answered(before))
        kept = [probe for probe in before["probes"] if probe["id"] not in ids]
        probes = [*kept, *(probe for probe in now["probes"] if probe["id"] in ids)]
        written = path.with_suffix(".tmp")
        written.write_text(json.dumps({**now, "probes": probes}, indent=1) + "\n")
        os.replace(written, path)
    new.unlink()


def main():
    what, path, *rest = sys.argv[1:]
    if what == "merge":
        merge(pathlib.Path(path), pathlib.Path(rest[0]))
    else:
        there = answered(read(pathlib.Path(path)))
        print(" ".join(name for name in rest if name not in there))


if __name__ == "__main__":
    main()
