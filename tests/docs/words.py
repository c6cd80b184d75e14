#!/usr/bin/env python3
"""words.py ROOT: checks that no text of a program has a word that only its authors know. Prints each; exits with 1 if any."""

import pathlib
import re
import sys

FOLDERS = ("daemon", "tools/geminictl")
# Users do not know the left word. The right word is the one to show them.
WORDS = {
    r"\bgranules?\b": "chunk, or bytes",
    r"\b(Create|Destroy)Arena\b": "device memory",
    r"\bhas_home\b": "home",
    r"\bextents?\b": "place",
    r"\bk[A-Z]\w+": "the value in words",
}
# Not shown to users: names of memory regions and of parts of the manifest, in messages about our own bugs.
EXEMPT = {"daemon/core/engine/engine_check.cc", "daemon/core/chunks/extent_allocator.cc"}
# Texts that programs send to each other.
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
