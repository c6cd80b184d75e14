"""The annotations that the package ships (py.typed) pass mypy --strict, except those of the two modules for
trainers."""

import os
import pathlib
import subprocess
import sys

import pytest

import geminid

pytest.importorskip("mypy")

PACKAGE = pathlib.Path(geminid.__file__).parent
# Only this package is checked. mypy reads the annotations of other packages.
OPTIONS = ("--strict", "--python-version", "3.10", "--no-error-summary", "--hide-error-context")
OF_TRAINERS = ("transformers.py", "lightning.py")


def errors_in(files):
    done = subprocess.run([sys.executable, "-m", "mypy", *OPTIONS, *map(str, files)], cwd=PACKAGE.parent, capture_output=True,
                          text=True, check=False, env={**os.environ, "MYPYPATH": str(PACKAGE.parent)})
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


def test_package_holds():
    assert (PACKAGE / "py.typed").exists()
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name not in OF_TRAINERS]
    assert len(files) > 30 and errors_in(files) == []


def test_what_does_not_hold_is_found(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("from geminid.errors import GeminidError\n\n\ndef wrong():\n    return GeminidError(1)\n")
    said = errors_in([program])
    assert len(said) == 2 and "missing a return type" in said[0] and '"GeminidError" has incompatible type "int"' in said[1]
