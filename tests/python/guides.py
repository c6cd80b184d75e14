"""Which names of Geminid the pages for those who come from elsewhere show, and which of these do not exist."""

import importlib
import inspect
import re

# A row's right column: what follows the last bar that is not escaped.
ROW = re.compile(r"^\|(?P<left>.*)\|(?P<right>[^|]*)\|$", re.MULTILINE)
NAME = re.compile(r"\bgeminid(?:\.\w+)+")
ARGUMENT = re.compile(r"\b(\w+)=")
CALL = re.compile(r"\b(geminid(?:\.\w+)+)\(([^()]*)\)")


def resolve(name):
    """The object; AttributeError or ImportError where there is none."""
    package, *parts = name.split(".")
    found, path = importlib.import_module(package), package
    for part in parts:
        path += "." + part
        if not hasattr(found, part):  # a module that nobody has imported; a function of its name comes first
            importlib.import_module(path)
        found = getattr(found, part)
    return found


def parameters_of(function):
    """What it takes by name; None: anything."""
    named = inspect.signature(function).parameters
    return None if any(p.kind is p.VAR_KEYWORD for p in named.values()) else set(named)


def missing(page, arguments):
    """A line for each name in the right columns and examples of the page that is not there. `arguments`: those that a
    cell may show without their call, such as `unit="block"`."""
    shown = "\n".join(row["right"] for row in ROW.finditer(page)) + "\n".join(re.findall(r"^```.*?^```", page, re.M | re.S))
    for name in sorted(set(NAME.findall(shown))):
        try:
            resolve(name)
        except (AttributeError, ImportError):
            yield f"there is no {name}"
    for name, given in CALL.findall(shown):
        try:
            taken = parameters_of(resolve(name))
        except (AttributeError, ImportError, ValueError):
            continue
        for argument in ARGUMENT.findall(given):
            if taken is not None and argument not in taken:
                yield f"{name} takes no {argument}"
    for piece in re.findall(r"`(\w+)=[^`]*`", shown):
        if piece not in arguments:
            yield f"nothing of ours takes {piece}"
