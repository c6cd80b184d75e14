#!/usr/bin/env python3
"""documents.py ROOT BIN: checks that names in README.md and docs/ exist. Prints each violation; exits with 1 if any.

  1. Every relative link leads to an existing file or folder, and its anchor to a heading there.
  2. Every path in code that begins with a folder of the tree exists. Braces and stars are expanded.
  3. A flag shown with one of our programs is in the --help of that program and subcommand. A flag
     shown alone is in the --help of one of our programs.
"""

import itertools
import pathlib
import re
import subprocess
import sys

FOLDERS = ("base", "gpu", "include", "proto", "kernels", "collectives", "daemon", "client", "deploy", "tools", "training",
           "tests", "docs")
PROGRAMS = ("geminid", "geminid-agent", "geminid-train", "geminictl", "geminid-sim",
            "geminid-gpu-verify", "geminid-kernel-check", "geminid-holder")

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?$(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}\S.*\n)+", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
PATH = re.compile(r"(?<![\w./<>$-])(?:%s)/[\w./{},*-]*" % "|".join(FOLDERS))
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def code_of(text):
    """Yields a page's code blocks and inline code. Continued lines are joined."""
    blocks = FENCE.findall(text)
    rest = FENCE.sub("\n", text)
    blocks += INDENTED.findall(rest)
    blocks = [block.replace("\\\n", " ") for block in blocks]
    return blocks, [piece.replace("\n", " ") for piece in INLINE.findall(INDENTED.sub("\n", rest))]


def anchors_of(text):
    """Returns the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+\s+(.*)$", FENCE.sub("\n", text), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def expanded(path):
    """Expands a/{b,c}.h to a/b.h and a/c.h."""
    match = re.search(r"\{([^{}]*)\}", path)
    if match is None:
        return [path]
    return [whole for part in match.group(1).split(",")
            for whole in expanded(path[:match.start()] + part + path[match.end():])]


def bad_links(root, page, text):
    prose = INLINE.sub("", FENCE.sub("\n", text))
    for target in LINK.findall(prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (root / page).parent / path if path else root / page
        if not file.exists():
            yield f"{page}: the link to {target} leads nowhere"
        elif anchor and file.suffix == ".md" and anchor not in anchors_of(file.read_text()):
            yield f"{page}: the link to {target} leads to no heading"


def bad_paths(root, page, text):
    blocks, pieces = code_of(text)
    found = {path.rstrip(".,") for code in blocks + pieces for path in PATH.findall(code)}
    for path in sorted(itertools.chain.from_iterable(expanded(path) for path in found)):
        if not any(root.glob(path.rstrip("/"))):
            yield f"{page}: there is no {path}"


def bad_flags(helps, page, text):
    """Yields each wrong flag. helps: the flags in the --help of each command, such as ("geminictl", "ls")."""
    blocks, pieces = code_of(text)
    every = set().union(*helps.values())
    for line in [line for block in blocks for line in block.splitlines()] + pieces:
        line = line.split("#")[0]
        command, its = command_of(line, helps)
        flags = set(FLAG.findall(its))
        if command is None:
            alone = line.strip().startswith("--")
            missing = {flag for flag in flags if flag not in every} if alone else ()
            where = "no program"
        else:
            known = set().union(*(helps[command[:n]] for n in range(1, len(command) + 1)))
            missing = flags - known
            where = " ".join(command)
        for flag in sorted(missing):
            yield f"{page}: {flag} is not in the --help of {where}: {line.strip()[:60]}"


def command_of(line, helps):
    """Returns the program and subcommands that a line runs, or None, and the rest of the line from there. The text
    before it is a program that starts ours."""
    words = line.split()
    for at, word in enumerate(words):
        command = (pathlib.PurePath(word).name,)
        if command not in helps or words[at - 1:at] == ["-m"]:  # a Python package may have the same name
            continue
        for word in words[at + 1:]:
            if command + (word,) in helps:
                command += (word,)
        return command, " ".join(words[at:])
    return None, line


def violations_of(root, page, text, helps):
    return [*bad_links(root, page, text), *bad_paths(root, page, text),
            *bad_flags(helps, page, text)]


def read_helps(bin_folder):
    """Returns the --help of each program in the folder and of its subcommands."""
    helps = {}

    def read(command):
        done = subprocess.run([str(bin_folder / command[0]), *command[1:], "--help"], timeout=60,
                              capture_output=True, text=True, check=True)
        helps[command] = set(FLAG.findall(done.stdout)) | {"--help"}
        _, _, rest = done.stdout.partition("Subcommands:")
        subcommands, _, _ = rest.partition("\n\n")  # the rest lists no subcommands
        for name in re.findall(r"^  ([a-z][a-z-]*) ", subcommands, re.MULTILINE):
            read(command + (name,))

    for program in PROGRAMS:
        if (bin_folder / program).exists():
            read((program,))
    return helps


def pages_of(root):
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def main():
    root = pathlib.Path(sys.argv[1])
    helps = read_helps(pathlib.Path(sys.argv[2]))
    missing = [program for program in PROGRAMS if (program,) not in helps]
    found = [f"{program} is not built" for program in missing]
    pages = pages_of(root)
    for page in pages:
        found += violations_of(root, page.relative_to(root).as_posix(), page.read_text(), helps)
    for violation in found:
        print(violation)
    print(f"{len(pages)} pages, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
