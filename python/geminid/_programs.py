"""The programs in the wheel, as commands: each becomes the program, with the same process number."""

import os
import pathlib
import sys

from geminid.errors import NotFound


def path_of(name):
    program = pathlib.Path(__file__).parent / "bin" / name
    if not program.exists():
        raise NotFound(f"{name} is not in this installation of the package; install the geminid wheel, or build the "
                       "project and start build/dev/bin/" + name)
    return str(program)


def _become(name, arguments):
    program = path_of(name)
    os.execv(program, [program, *arguments])


def geminid():
    _become("geminid", sys.argv[1:])


def geminictl():
    _become("geminictl", sys.argv[1:])


def geminid_holder():
    _become("geminid-holder", sys.argv[1:])


def geminid_agent():
    _become("geminid-agent", sys.argv[1:])
