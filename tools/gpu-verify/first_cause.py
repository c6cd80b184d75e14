#!/usr/bin/env python3
"""tools/gpu-verify/first_cause.py < FILE: prints the first line of a program's output that names an error and 50 lines around.

Later errors usually follow from the first one. If no line names an error, it prints the last 50 lines.
"""

import re
import sys

LINES = 50
BEFORE = 10  # so many of the lines come before the error, where the failed call is often printed
WIDTH = 300
ERROR = re.compile(r"Traceback \(most recent call last\)|\b[Ee]rror\b|\w(Error|Exception)\b|\bERROR\b|\bFAIL|\b[Ff]ail(ed|ure|s)?\b|"
                   r"\b[Ff]atal\b|terminate called|Assertion|[Rr]efused|Segmentation fault|not the bits of|\bdiffers?\b|not done within")


def find(text):
    """Returns (number of the line with the first error or None, at most 50 lines around it)."""
    lines = [line[:WIDTH] for line in text.splitlines()]
    first = next((number for number, line in enumerate(lines) if ERROR.search(line)), None)
    if first is None:
        return None, lines[-LINES:]
    begin = max(0, min(first - BEFORE, len(lines) - LINES))
    return first + 1, lines[begin:begin + LINES]


def words(text):
    """Returns the text for a report: the first cause, and then its context."""
    number, lines = find(text)
    if number is None:
        return "\n".join(lines)
    return "\n".join([f"first cause, line {number}: {text.splitlines()[number - 1][:WIDTH].strip()}", *lines])


if __name__ == "__main__":
    print(words(sys.stdin.read()))
