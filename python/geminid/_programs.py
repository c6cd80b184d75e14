"""Runs the programs of the wheel as commands. Each replaces this process and has its process number."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import NoReturn

from geminid.errors import NotFound

#: The programs of the wheel. "geminid" is the daemon.
NAMES = ("geminid", "geminid-holder", "geminid-agent", "geminictl", "geminid-train")


def find(name: str) -> str | None:
    """Returns a program's path: in the package, else beside $GEMINID_DAEMON, else on PATH."""
    daemon = os.environ.get("GEMINID_DAEMON")
    for folder in (pathlib.Path(__file__).parent / "bin", pathlib.Path(daemon).parent if daemon else None):
        if folder is not None and (folder / name).is_file():
            return str(folder / name)
    # Skip the package's own console script of this name: it would call this function again.
    beside = pathlib.Path(sys.executable).parent
    found = shutil.which(name)
    return found if found and pathlib.Path(found).parent != beside else None


def become(name: str, arguments: list[str]) -> NoReturn:
    """Replaces this process by the program. Raises NotFound if there is no such program."""
    program = find(name)
    if program is None:
        raise NotFound(f"{name} is not in this installation of the package, beside $GEMINID_DAEMON or on PATH; install the "
                       "geminid wheel, or build the project and set GEMINID_DAEMON to build/dev/bin/geminid")
    os.execv(program, [program, *arguments])


def geminid() -> NoReturn:
    become("geminid", sys.argv[1:])


def geminictl() -> NoReturn:
    become("geminictl", sys.argv[1:])


def geminid_holder() -> NoReturn:
    become("geminid-holder", sys.argv[1:])


def geminid_agent() -> NoReturn:
    become("geminid-agent", sys.argv[1:])


def geminid_train() -> NoReturn:
    become("geminid-train", sys.argv[1:])
