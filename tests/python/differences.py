"""How far two runs are apart. Without torch, for programs that start before it is imported."""

import math


def difference(actual, expected):
    """The largest relative one of two lists; infinite where a number is not one, which max() alone may pass over, and where one
    list is longer."""
    apart = [abs(a - e) / max(abs(e), 1e-30) for a, e in zip(actual, expected)]
    return max(apart) if len(actual) == len(expected) and all(map(math.isfinite, apart)) else math.inf
