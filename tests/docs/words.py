#!/usr/bin/env python3
"""words.py ROOT: no text that a program shows has a word that only its authors know. Prints each; exits with 1 if any."""

import pathlib
import re
import sys

FOLDERS = ("daemon", "tools/geminictl")
# The left word means nothing to who runs a job; the right one is ours for people.
WORDS = {
    r"\bgranules?\b": "chunk, or bytes",
    r"\b(Create|Destroy)Arena\b": "device memory",
    r"\bhas_home\b": "home",
    r"\bextents?\b": "place",
    r"\bk[A-Z]\w+": "the value in words",
}
# Not for people: names of places in memory and of parts of the manifest, said of our own defects.
EXEMPT = {"daemon/core/engine/engine_check.cc", "daemon/core/chunks/extent_allocator.cc"}
# What programs say to each other.
PATH_OF_A_CALL = re.compile(r"/geminid\.v\d+\.\w+/\w+")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def violations_of(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("//", "#include")):
            continue
        for literal in LITERAL.findall(line):
            if PATH_OF_A_CALL.fullmatch(literal):
                continue
            for word, better in WORDS.items():
                found = re.search(word, literal)
                if found:
                    yield f"{path}:{number}: '{found.group()}' means nothing to people; say {better}"


def main():
    root = pathlib.Path(sys.argv[1])
    found = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.cc")):
            path = file.relative_to(root).as_posix()
            if path not in EXEMPT and "planner" not in path:
                found += violations_of(path, file.read_text())
    for violation in found:
        print(violation)
    print(f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
