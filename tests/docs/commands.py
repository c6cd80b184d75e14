#!/usr/bin/env python3
"""commands.py ROOT BIN: geminid-train must accept each command line on a page. Prints each refused one; exits with 1 if any.

geminid-train checks its flags before it opens a file. So each line runs in an empty folder with a missing text. Exit code 4
shows that the flags are valid. Nothing is trained.
"""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import blocks

PROGRAM = "geminid-train"
NOT_FOUND = 4
TEXT = "/nonexistent/text"
COMMAND = re.compile(rf"^(?:[A-Z_]+=\S+ )*{PROGRAM} (?=.*--)(.*)$")
# Shell variables and placeholders for the reader.
PLACEHOLDERS = {"$text": TEXT, "$flags": ""}
# Flags of lines that need an existing folder, which names the model.
NEEDS_A_FOLDER = re.compile(r"--resume\b")


def commands_of(page):
    """Yields the arguments of each command line of the program in the page's blocks."""
    for _, block in blocks.FENCE.findall(page):
        for line in block.replace("\\\n", " ").splitlines():
            found = COMMAND.match(line.strip().split(" #")[0].rstrip("& "))
            if found is None or (NEEDS_A_FOLDER.search(line) and "--model" not in line):
                continue
            text = found[1]
            for word, value in PLACEHOLDERS.items():
                text = text.replace(word, value)
            words = shlex.split(text)
            yield [TEXT if before == "--text" else word for before, word in zip(["", *words], words)]


def violations_of(pages, run):
    """Yields violations. pages: texts by path. run(arguments): returns the program's exit code and output."""
    for path, page in pages.items():
        for arguments in commands_of(page):
            code, words = run(arguments)
            if code != NOT_FOUND:
                yield f"{path}: {PROGRAM} {' '.join(arguments)} ends with {code}: {words}"


def runner(program, folder):
    def run(arguments):
        done = subprocess.run([program, *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)
        return done.returncode, done.stderr.strip()

    return run


def main():
    root = pathlib.Path(sys.argv[1])
    paths = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    pages = {path.relative_to(root).as_posix(): path.read_text() for path in paths}
    with tempfile.TemporaryDirectory() as folder:
        found = list(violations_of(pages, runner(str(pathlib.Path(sys.argv[2]).resolve() / PROGRAM), folder)))
    for violation in found:
        print(violation)
    count = sum(len(list(commands_of(page))) for page in pages.values())
    print(f"{count} commands, {len(found)} violations")
    return 1 if found or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
