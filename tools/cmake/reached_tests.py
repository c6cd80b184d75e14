"""Finds the programs and the entries of ctest that a change can reach, from the files that the last build read.

  reached_tests.py programs BUILD [BASE]    the programs to build again, a line each
  reached_tests.py entries BUILD [BASE]     the numbers of the entries to run, for ctest -I

BASE is the commit to compare with. By default it is where the branch left main, or on main the previous commit. A
program is reached through every file that its compilation or linking read. An entry is reached through the
programs, scripts and folders that its command names. A change to the build's rules reaches everything.
Exit code 3: there is no build yet, so everything is reached.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from changed_files import changed_files  # noqa: E402

NOTHING_BUILT = 3
LINKED = re.compile(r"^(?P<path>\S+): \S*(?:EXECUTABLE|SHARED_LIBRARY|SHARED_MODULE|MODULE_LIBRARY)_LINKER")
SCRIPTS = (".py", ".sh", "")
# Lists of the tests' sources are not among these: CMake runs again, and Ninja knows their new sources.
BUILD_FILES = re.compile(r"^CMakeLists\.txt$|^CMakePresets\.json$|^tools/cmake/.*\.cmake$|^(?!tests/).*/CMakeLists\.txt$")


def is_below(path, folder):
    return path == folder or path.startswith(folder + "/")


class Build:
    """Ninja's data about a build folder."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)

    def ninja(self, *arguments):
        done = subprocess.run(["ninja", "-C", self.folder, "-t", *arguments], capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if not line.startswith("ninja: ")]

    def absolute(self, path):
        return os.path.normpath(os.path.join(self.folder, path))

    def objects_that_read(self, files):
        """Returns the outputs whose compilation read one of the files, by Ninja's names."""
        outputs, output = set(), None
        for line in self.ninja("deps"):
            if line.startswith(" "):
                if self.absolute(line.strip()) in files:
                    outputs.add(output)
            elif line:
                output = line.split(": #deps", 1)[0]
        return outputs

    def programs(self):
        return [found["path"] for found in map(LINKED.match, self.ninja("targets", "all")) if found]

    def reached_programs(self, files):
        """Returns the programs that compile, read or link one of the files."""
        objects = self.objects_that_read(files)
        return [program for program in self.programs()
                if any(entry in objects or self.absolute(entry) in files
                       for entry in self.ninja("inputs", program))]


def names(entry):
    """Returns the paths that an entry's command names."""
    return [part for word in entry.get("command", []) for part in re.split("[=:;]", word)
            if os.path.isabs(part)]


def reaches(path, files, programs):
    """Returns whether a path is, or contains, a changed file or a program to build again."""
    if path in programs or path in files:
        return True
    if os.path.isdir(path):
        return any(is_below(changed, path) for changed in (*files, *programs))
    # A script may import modules of its folder.
    return path.endswith(".py") and any(os.path.dirname(changed) == os.path.dirname(path)
                                        and os.path.splitext(changed)[1] in SCRIPTS for changed in files)


def reached_entries(entries, files, programs):
    """Returns the numbers of the entries, which are their positions in ctest's list."""
    return [number for number, entry in enumerate(entries, 1)
            if any(reaches(path, files, programs) for path in names(entry))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("programs", "entries"))
    parser.add_argument("build")
    parser.add_argument("base", nargs="?")
    arguments = parser.parse_args()
    root = str(pathlib.Path(__file__).resolve().parents[2])
    build = Build(arguments.build)
    if not os.path.exists(os.path.join(build.folder, ".ninja_deps")):
        sys.exit(NOTHING_BUILT)
    changed = changed_files(root, arguments.base, deleted=True)
    files = {os.path.join(root, path) for path in changed}
    everything = any(BUILD_FILES.match(path) for path in changed)
    programs = build.programs() if everything else build.reached_programs(files)
    if arguments.what == "programs":
        print(*programs, sep="\n")
        return
    listed = subprocess.run(["ctest", "--test-dir", build.folder, "--show-only=json-v1"], check=True,
                            capture_output=True, text=True)
    entries = json.loads(listed.stdout)["tests"]
    absolute = {build.absolute(program) for program in programs}
    numbers = range(1, len(entries) + 1) if everything else reached_entries(entries, files, absolute)
    print(*numbers, sep=",")


if __name__ == "__main__":
    main()
