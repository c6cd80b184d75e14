#!/usr/bin/env python3
"""same_output.py PROGRAM OTHER: runs both without a daemon and a launcher; exits with 1 if they print
different lines, or none."""

import difflib
import os
import subprocess
import sys

LAUNCHER = ("GEMINID_SOCKET", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def printed(program):
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHER}
    return subprocess.run([program], capture_output=True, text=True, check=True,
                          env=environment).stdout.splitlines()


def main():
    expected, actual = map(printed, sys.argv[1:])
    for line in difflib.unified_diff(expected, actual, *sys.argv[1:], lineterm=""):
        print(line)
    return 0 if expected and expected == actual else 1


if __name__ == "__main__":
    sys.exit(main())
