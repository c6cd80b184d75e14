#!/usr/bin/env python3
"""readme_snippet.py README EXAMPLE: checks that the README's C++ block is the whole example, and short enough to read."""

import pathlib
import re
import sys

LINES_MAX = 40


def problem_of(readme, example):
    """Returns the problem, or None."""
    blocks = re.findall(r"```cpp\n(.*?)```", readme, re.DOTALL)
    if len(blocks) != 1:
        return f"README has {len(blocks)} C++ blocks; expected one"
    if blocks[0] != example:
        return "README's C++ block is not the example as a whole; copy it from there"
    lines = example.count("\n")
    if lines > LINES_MAX:
        return f"the example has {lines} lines; README has room for {LINES_MAX}"
    return None


if __name__ == "__main__":
    problem = problem_of(*(pathlib.Path(path).read_text() for path in sys.argv[1:3]))
    if problem:
        sys.exit(problem)
