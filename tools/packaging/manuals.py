#!/usr/bin/env python3
"""manuals.py OUT VERSION PROGRAM...: makes manual pages and completions from the --help of the programs.

OUT gets man1/ and man8/, compressed as in packages, and bash/, zsh/ and fish/.
"""

import gzip
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tools.packaging import completion, help_text, man_page  # noqa: E402


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def main():
    out, version = pathlib.Path(sys.argv[1]), sys.argv[2]
    for program in map(pathlib.Path, sys.argv[3:]):
        shown = help_text.read(program)
        section = man_page.section_of(shown.name)
        page = man_page.render(shown, version).encode()
        # Without a time stamp, so that the bytes are always the same.
        write(out / f"man{section}" / f"{shown.name}.{section}.gz",
              gzip.compress(page, compresslevel=9, mtime=0))
        write(out / "bash" / shown.name, completion.bash(shown).encode())
        write(out / "zsh" / f"_{shown.name}", completion.zsh(shown).encode())
        write(out / "fish" / f"{shown.name}.fish", completion.fish(shown).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
