"""Checks that the installed release of another package is one that an integration was tested with."""

from __future__ import annotations

import importlib.metadata
import re
import warnings

from geminid.errors import Refused


def _minor(release: str) -> tuple[int, int]:
    """Returns (4, 57) for "4.57.6"."""
    numbers = [int(number) for number in re.findall(r"\d+", release)[:2]]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


def check(package: str, oldest: str, newest: str) -> None:
    """Refuses a release older than the oldest tested one. Warns of a release newer than the newest tested one.

    oldest, newest: the first two numbers, such as "4.57". All releases that begin with them are in the range.
    """
    release = importlib.metadata.version(package)
    tried = f"{oldest} to {newest} were tried with this release of Geminid"
    if _minor(release) < _minor(oldest):
        raise Refused(f"{package} is {release}; {tried}. Write pip install '{package}>={oldest}'")
    if _minor(release) > _minor(newest):
        warnings.warn(f"{package} is {release}; {tried}. If training fails or its losses differ from plain {package}, write "
                      f"pip install '{package}=={newest}.*'", stacklevel=3)
