#!/usr/bin/env python3
"""readme_snippet.py README EXAMPLE: the README's C++ block is part of the example, word for word."""

import pathlib
import re
import sys


def problem_of(readme, example):
    """What is wrong, or None."""
    blocks = re.findall(r"```cpp\n(.*?)```", readme, re.DOTALL)
    if len(blocks) != 1:
        return f"README has {len(blocks)} C++ blocks; expected one"
    if blocks[0] not in example:
        return "README's C++ block is not in the example; copy it from there"
    return None


if __name__ == "__main__":
    problem = problem_of(*(pathlib.Path(path).read_text() for path in sys.argv[1:3]))
    if problem:
        sys.exit(problem)
