#!/usr/bin/env python3
"""exports.py LIBRARY HEADER...: checks that a library exports exactly the functions that the headers declare, under
the version GEMINID_1. Prints each violation and exits with 1 if there is any.
"""

import pathlib
import re
import subprocess
import sys

VERSION = "GEMINID_1"
DECLARED = re.compile(r"^(?!typedef)\w[\w ]*\**[ *](geminid_\w+)\(", re.MULTILINE)


def declared(header):
    """Returns the names of the functions that a C header declares."""
    return set(DECLARED.findall(re.sub(r"//[^\n]*", "", header)))


def exported(listing):
    """Returns the (name, version) pairs in a listing of `nm -D --defined-only --with-symbol-versions`."""
    names = (line.split()[-1] for line in listing.splitlines() if line.strip())
    return {tuple((re.split("@+", name) + [""])[:2]) for name in names}


def violations(functions, symbols):
    """Yields each function that is exported but not declared, or declared but not exported."""
    names = {name for name, _ in symbols}
    for name in sorted(functions - names):
        yield f"{name} is declared, and not exported"
    for name, version in sorted(symbols):
        if name == VERSION:
            continue
        if name not in functions:
            yield f"{name} is exported, and not declared"
        elif version != VERSION:
            yield f"{name} is exported under '{version}', not {VERSION}"


def main():
    library, *headers = map(pathlib.Path, sys.argv[1:])
    listing = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library],
                             capture_output=True, text=True, check=True).stdout
    functions = {name for header in headers for name in declared(header.read_text())}
    found = list(violations(functions, exported(listing)))
    for violation in found:
        print(violation)
    print(f"{len(functions)} functions, {len(found)} violations")
    return 1 if found or not functions else 0


if __name__ == "__main__":
    sys.exit(main())
