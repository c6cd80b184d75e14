"""Reads the figures that a benchmark prints as rows of named numbers, and checks that all promised figures exist."""

import json
import math
import re


class Unreadable(Exception):
    """A benchmark's output has the wrong form."""


def google_rows(text):
    """Returns the rows of Google Benchmark's JSON: times and counters by benchmark; of repetitions the medians."""
    rows = {}
    for entry in parsed(text).get("benchmarks", []):
        name = entry.get("run_name", entry["name"])
        if entry.get("error_occurred"):
            raise Unreadable(f"{name}: {entry.get('error_message', 'failed')}")
        if entry.get("run_type") == "aggregate" and entry.get("aggregate_name") != "median":
            continue
        rows[name] = {key: value for key, value in entry.items() if isinstance(value, (int, float)) or key == "time_unit"}
    if not rows:
        raise Unreadable("no benchmark ran")
    return rows


def json_rows(text):
    """Returns the numbers of any JSON by path. The outermost object is the row ''."""
    rows = {}

    def walk(path, value):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(inner, (dict, list)):
                walk(f"{path}/{key}" if path else str(key), inner)
            elif isinstance(inner, str) or inner is None:
                rows.setdefault(path, {})[str(key)] = inner
            else:
                rows.setdefault(path, {})[str(key)] = float(inner)

    walk("", parsed(text))
    return rows


def text_rows(text, pattern):
    """Returns the named groups of each match of the pattern, by its number."""
    rows = {str(number): {name: value_of(word) for name, word in match.groupdict().items()}
            for number, match in enumerate(re.finditer(pattern, text))}
    if not rows:
        raise Unreadable(f"it printed nothing like: {pattern}")
    return rows


def value_of(word):
    try:
        return float(word)
    except ValueError:
        return word


def parsed(text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise Unreadable(f"its JSON cannot be read: {error}") from None


def missing(rows, figures):
    """Returns the promised `figures` that are missing, or are no finite number above 0."""
    for pattern, names in figures:
        those = {row: values for row, values in rows.items() if re.fullmatch(pattern, row)}
        if not those:
            yield f"no row fits {pattern}"
        for row, values in those.items():
            for name in names:
                value = values.get(name)
                where = f"{row} {name}".strip()
                if value is None:
                    yield f"{where} is missing"
                elif not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
                    yield f"{where} is {value}, no finite number above 0"
