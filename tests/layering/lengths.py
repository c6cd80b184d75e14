#!/usr/bin/env python3
"""lengths.py ROOT: checks the length of functions outside of tests.

Fewer than 1 % of all functions may have more than 70 lines: a function fits a screen. A function's
lines run from its signature to its closing brace and include the lambdas and types inside it. Prints
each function over the limit, and the figures. Exits with 1 if the rule is broken.

Also names files of more than 500 lines. That is only advice: a file has one idea, however long it is.
"""

import pathlib
import re
import sys

import tree

FUNCTION_LINES_MAX = 70
LONG_FUNCTIONS_SHARE_MAX = 0.01
FILE_LINES_ADVISED = 500

# Comments, strings, characters and preprocessor lines: their braces do not count.
BLANKED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE)
SCOPE_WORD = re.compile(  # at the start of a line: a macro without semicolon may stand before it
    r"^[ \t]*(?:template\b.*>\s*)?(?:inline )?(?:class|struct|union|enum|namespace|extern)\b",
    re.MULTILINE)
QUALIFIERS = r"(?:\s*(?:const|noexcept(?:\([^{}]*\))?|override|final|mutable|try|&&?|->[^;{}]*))*"
ENDS_PARAMETERS = re.compile(r"\)" + QUALIFIERS + r"\s*$")
STARTS_INITIALISERS = re.compile(r"\)" + QUALIFIERS + r"\s*:(?!:)")
BODY, SCOPE, VALUE = "the body of a function", "a namespace or a type", "what a variable starts with"


def code_of(text):
    """Returns `text` with comments, strings and the like blanked. Line numbers do not change."""
    return BLANKED.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def opened_by(declaration):
    """Returns what the brace after `declaration`, outside of all functions, opens."""
    if ENDS_PARAMETERS.search(declaration) and not STARTS_INITIALISERS.search(declaration):
        return BODY
    if STARTS_INITIALISERS.search(declaration):  # a_(1), b_{2} {
        return BODY if declaration[-1] in ")}" else VALUE
    return SCOPE if declaration == "" or SCOPE_WORD.search(declaration) else VALUE


def functions_of(text):
    """Yields (first line, number of lines, signature) of each function defined in C++ `text`."""
    code = code_of(text)
    opened = []  # what each open brace opened
    begin = 0  # the position of the current declaration
    for token in re.finditer(r"[{};]|\b(?:public|private|protected)\s*:", code):
        free = BODY not in opened and VALUE not in opened
        if token.group() == "{":
            opened.append(opened_by(code[begin:token.start()].strip()) if free else VALUE)
            if opened[-1] == SCOPE:
                begin = token.end()
        elif token.group() == "}":
            closed = opened.pop() if opened else SCOPE
            if closed == BODY:
                first = begin + len(code[begin:]) - len(code[begin:].lstrip())
                signature = " ".join(code[first:code.index("{", first)].split())
                yield (code.count("\n", 0, first) + 1,
                       code.count("\n", first, token.start()) + 1, signature)
            if closed != VALUE:
                begin = token.end()
        elif free:
            begin = token.end()


def measure(texts):
    """Returns (functions, those over the limit as (path, line, lines, signature), files over the limit)."""
    functions, long_functions, long_files = 0, [], []
    for path, text in texts.items():
        for line, lines, signature in functions_of(text):
            functions += 1
            if lines > FUNCTION_LINES_MAX:
                long_functions.append((path, line, lines, signature))
        lines = text.count("\n")
        if lines > FILE_LINES_ADVISED:
            long_files.append((path, lines))
    return functions, long_functions, long_files


def is_broken(functions, long_functions):
    return functions == 0 or len(long_functions) >= LONG_FUNCTIONS_SHARE_MAX * functions


def main():
    functions, long_functions, long_files = measure(tree.read_sources(pathlib.Path(sys.argv[1])))
    for path, line, lines, signature in sorted(long_functions, key=lambda found: -found[2]):
        print(f"{path}:{line}: {lines} lines: {signature[:60]}")
    for path, lines in long_files:
        print(f"{path}: {lines} lines: has it one idea?")
    share = 100 * len(long_functions) / max(functions, 1)
    print(f"{functions} functions, {len(long_functions)} over {FUNCTION_LINES_MAX} lines ({share:.2f} %,"
          f" below {100 * LONG_FUNCTIONS_SHARE_MAX:g} %); {len(long_files)} files over {FILE_LINES_ADVISED}")
    return 1 if is_broken(functions, long_functions) else 0


if __name__ == "__main__":
    sys.exit(main())
