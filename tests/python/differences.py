"""Compares two runs. Does not import torch, for programs that start before torch is imported."""

import math


def difference(actual, expected):
    """Returns the largest relative difference of two lists. It is infinite if a value is not a number, because max() may
    skip such a value, and if one list is longer."""
    apart = [abs(a - e) / max(abs(e), 1e-30) for a, e in zip(actual, expected)]
    return max(apart) if len(actual) == len(expected) and all(map(math.isfinite, apart)) else math.inf
