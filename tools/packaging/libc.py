"""Adds the C library to a tarball, for older systems, and finds the version that programs need."""

import pathlib
import re
import shutil

from tools.packaging import libraries, machine

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = "lib/geminid/c"
SWITCH = "own-libc"


def parse_needs(text):
    """Returns the highest version of the C library in the output of objdump -T; () if there is none."""
    found = re.findall(r"\(?GLIBC_(\d+(?:\.\d+)+)\)?", text)
    return max((tuple(map(int, version.split("."))) for version in found), default=())


def needs(paths):
    """Returns the highest version that one of these files needs, and that file."""
    return max((parse_needs(machine.run(["objdump", "-T", str(path)])), path.name) for path in paths)


def parse_interpreter(text):
    """Returns the loader that a program names, from the output of readelf -l."""
    there = re.search(r"program interpreter: ([^\]]+)\]", text)
    return there.group(1) if there else None


def add(folder, needed):
    """Adds this system's C library, patchelf and the switch to the tree of a tarball. Returns {name: original path}."""
    program = next((folder / "bin").iterdir())
    loader = pathlib.Path(parse_interpreter(machine.run(["readelf", "-lW", str(program)])))
    place = pathlib.Path(libraries.needed(program)["libc.so.6"]).parent
    patchelf = pathlib.Path(shutil.which("patchelf") or "/usr/bin/patchelf")
    found = {loader.name: loader, "patchelf": patchelf}
    found |= {name: place / name for name in sorted(libraries.OF_THE_SYSTEM)
              if name != loader.name and (place / name).exists()}
    target = folder / FOLDER
    target.mkdir(parents=True)
    for name, path in found.items():
        shutil.copy(path, target / name)
        (target / name).chmod(0o755 if name in (loader.name, "patchelf") else 0o644)
    text = (HERE / SWITCH).read_text()
    for word, value in (("@NEEDS@", ".".join(map(str, needed))), ("@SYSTEM_LOADER@", str(loader)), ("@LOADER@", loader.name)):
        text = text.replace(word, value)
    (folder / SWITCH).write_text(text)
    (folder / SWITCH).chmod(0o755)
    return found
