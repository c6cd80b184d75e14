"""Finds names of Geminid on the pages for users of other libraries, and reports those that do not exist."""

import importlib
import inspect
import re

# The right column of a row is the text after the last unescaped bar.
ROW = re.compile(r"^\|(?P<left>.*)\|(?P<right>[^|]*)\|$", re.MULTILINE)
NAME = re.compile(r"\bgeminid(?:\.\w+)+")
ARGUMENT = re.compile(r"\b(\w+)=")
CALL = re.compile(r"\b(geminid(?:\.\w+)+)\(([^()]*)\)")


def resolve(name):
    """Returns the object. Raises AttributeError or ImportError if there is none."""
    package, *parts = name.split(".")
    found, path = importlib.import_module(package), package
    for part in parts:
        path += "." + part
        if not hasattr(found, part):  # a module that is not imported yet; a function of the same name has precedence
            importlib.import_module(path)
        found = getattr(found, part)
    return found


def parameters_of(function):
    """Returns the names of a function's parameters. None: it takes any name."""
    named = inspect.signature(function).parameters
    return None if any(p.kind is p.VAR_KEYWORD for p in named.values()) else set(named)


def missing(page, arguments):
    """Returns a line for each name in the page's right columns and examples that does not exist. `arguments`: arguments that
    a cell may show without their call, such as `unit="block"`."""
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
