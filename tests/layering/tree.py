"""Reads the folders of the project and the includes of their files, for the checks in this folder."""

import pathlib
import re

FOLDERS = ("include", "base", "gpu", "proto", "kernels", "collectives", "client", "daemon", "training", "tools")
SOURCES = {".h", ".cc", ".cu", ".cuh", ".c"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def read_sources(root, folders=FOLDERS):
    """Returns the text of each source file in `folders`, by its path relative to the root."""
    return {
        file.relative_to(root).as_posix(): file.read_text()
        for folder in folders for file in sorted((root / folder).rglob("*"))
        if file.suffix in SOURCES
    }


def includes_of(texts):
    """Yields each (file, included file) of the project. Public headers are included as geminid/x.h and lie
    in include/."""
    public = {path[len("include/"):]: path for path in texts if path.startswith("include/")}
    found = []
    for path, text in texts.items():
        for _, name in INCLUDE.findall(text):
            included = name if name in texts else public.get(name)
            if included is not None:
                found.append((path, included))
    return found


def parents_of(path):
    """Yields "" and then each folder above `path`, outermost first."""
    parts = pathlib.PurePosixPath(path).parts[:-1]
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]
