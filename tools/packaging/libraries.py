"""Finds the shared libraries that programs need at run time, and the packages of these libraries."""

import pathlib
import re
import shutil

from tools.packaging import machine

# Libraries of the running system. A copy of them would be loaded beside the system's.
OF_THE_SYSTEM = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0",
                 "librt.so.1", "libresolv.so.2", "libutil.so.1", "libanl.so.1"}


def parse_ldd(text):
    """Returns {name: path or None} from the output of ldd; None: not found."""
    found = {}
    for line in text.splitlines():
        there = re.match(r"\s*(\S+) => (\S+|not found)", line)
        if there:
            found[there.group(1)] = None if there.group(2) == "not" or "not found" in line else there.group(2)
    return found


def needed(program, environment=None):
    """Returns the same for a program or library."""
    return parse_ldd(machine.run(["ldd", str(program)], env=environment))


def parse_owners(text):
    """Returns {path: package} from the output of dpkg -S."""
    owners = {}
    for line in text.splitlines():
        package, _, path = line.partition(": ")
        if path and not package.startswith("diversion"):
            owners[path] = package.split(",")[0].split(":")[0]
    return owners


def spellings(path):
    """Returns the possible paths of a library for dpkg, because some folders are links to others."""
    real = str(pathlib.Path(path).resolve())
    names = {str(path), real}
    for name in list(names):
        names.add(name.removeprefix("/usr") if name.startswith("/usr/") else "/usr" + name)
    return names


def packages_of(paths):
    """Returns {package: (version, source package)} of the owners of these files."""
    asked = sorted({name for path in paths for name in spellings(path)})
    # The exit code is 1 if no package owns one of the paths.
    done = machine.try_run(["dpkg-query", "-S", *asked])
    owners = parse_owners(done.stdout)
    missing = [path for path in paths if not spellings(path) & set(owners)]
    if missing:
        raise machine.Failed(f"no package owns {missing[0]}")
    names = sorted({owner for path in paths for name, owner in owners.items() if name in spellings(path)})
    return versions_of(names)


def versions_of(names):
    text = machine.run(["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${source:Package}\n", *names])
    return {name: (version, source) for name, version, source in
            (line.split("\t") for line in text.splitlines())}


def copy_licences(packages, folder):
    """Copies the licence of each package whose libraries are included, under the package's name."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in packages:
        words = pathlib.Path("/usr/share/doc") / package / "copyright"
        if not words.exists():
            raise machine.Failed(f"{package} has no {words}; its libraries may not be carried without it")
        shutil.copy(words, folder / package)
