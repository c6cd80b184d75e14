#!/usr/bin/env python3
"""client_library.py LIBRARY LAYERS...: checks that a client library contains no code of the layers that only
the trainer uses. LAYERS are the static libraries of those layers.

Prints every function or object that both one of LAYERS and LIBRARY define as a strong symbol, exported or
not. Exits with 1 if there is any. Inline functions and templates are weak symbols, which every user of a
header has, and do not count.
"""

import pathlib
import subprocess
import sys

STRONG = "TDBR"


def strong_symbols(names):
    """Returns the strong symbols. names: output of `nm --defined-only --format=posix`: name, kind, address and size a line."""
    fields = (line.split() for line in names.splitlines())
    return {field[0] for field in fields if len(field) >= 2 and field[1] in STRONG}


def all_symbols(names):
    """Returns exported and hidden symbols: in a shared library hidden symbols are local."""
    fields = (line.split() for line in names.splitlines())
    return {field[0] for field in fields if len(field) >= 2}


def violations_of(library, layers):
    """Yields violations. `library` and the values of `layers`, by file name, are outputs of nm."""
    own = all_symbols(library)
    if not own:
        yield "it has no symbols to look at; check a library that is not stripped"
    for name, symbols in layers.items():
        defined = strong_symbols(symbols)
        if not defined:
            yield f"{name} defines no symbols to look for"
        for symbol in sorted(defined & own):
            yield f"it contains {symbol} of {name}"


def names_in(path):
    return subprocess.run(["nm", "--defined-only", "--format=posix", path], check=True, capture_output=True,
                          text=True).stdout


def main():
    library, layers = pathlib.Path(sys.argv[1]), [pathlib.Path(layer) for layer in sys.argv[2:]]
    found = list(violations_of(names_in(library), {layer.name: names_in(layer) for layer in layers}))
    for violation in found:
        print(f"{library.name}: {violation}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
