"""Draws a plan: device memory over the moments of an iteration, and the transfers."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from geminid.torch.readings import bytes_text

# The same colors as in the other pictures of device memory. Red-green blind readers can tell them apart (Okabe and Ito, 2008).
COLORS = {"weights": "#0072b2", "arriving": "#56b4e9", "gradients leaving": "#d55e00", "workspace": "#009e73"}
_INK, _UP, _DOWN, _WAIT = "#808080", "#0072b2", "#d55e00", "#cc79a7"
_WIDTH, _LEFT, _RIGHT, _TOP, _MEMORY, _BAR, _LANE = 720, 84, 704, 60, 200, 28, 40


def memory_of(plan: dict[str, Any]) -> list[dict[str, int]]:
    """Returns the device bytes of each moment by use. A chunk is "arriving" from the moment that issues its load to the
    moment that needs it. A dropped chunk that becomes a gradient is "leaving" until its memory is free."""
    moments, chunks = plan["moments"], plan["chunks"]
    count = len(moments)
    rows = [dict.fromkeys(COLORS, 0) for _ in moments]
    there = {placed["chunk"] for placed in plan["resident_at_start"]}
    arriving: dict[int, int] = {}  # by chunk: the moment that needs it
    leaving: dict[int, int] = {}  # by chunk: the first moment in which its memory is free
    for number in range(2 * count):  # the second round is the steady state
        m = number % count
        moment = moments[m]
        for load in moment["loads"]:
            deadline = load["deadline_moment"]
            there.discard(load["chunk"])
            arriving[load["chunk"]] = number - m + deadline + (count if deadline < m else 0)
        for chunk in [chunk for chunk, needed in arriving.items() if needed <= number]:
            del arriving[chunk]
            there.add(chunk)
        leaving = {chunk: free for chunk, free in leaving.items() if free > number}
        rows[m] = {"weights": sum(chunks[c]["device_bytes"] for c in there),
                   "arriving": sum(chunks[c]["device_bytes"] for c in arriving),
                   "gradients leaving": sum(chunks[c]["device_bytes"] for c in leaving),
                   "workspace": moment["workspace_bytes"]}
        for drop in moment["drops"]:
            there.discard(drop["chunk"])
            free = drop["free_moment"]
            if drop["becomes_gradient"]:
                leaving[drop["chunk"]] = number - m + free + (count if free <= m else 0)
    return rows


def _text(x: float, y: float, anchor: str, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{_INK}">{escape(words)}</text>\n'


def _line(y: float, more: str = "") -> str:
    return f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_RIGHT}" y2="{y:.1f}" stroke="{_INK}"{more}/>\n'


def _rectangle(x: float, y: float, width: float, height: float, color: str, words: str) -> str:
    return (f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.4):.2f}" height="{height:.2f}" fill="{color}">'
            f"<title>{escape(words)}</title></rect>\n")


def _memory(rows: list[dict[str, int]], arena_bytes: int) -> str:
    most = max([arena_bytes, *(sum(row.values()) for row in rows)]) or 1
    width, made = (_RIGHT - _LEFT) / max(len(rows), 1), ""
    for number, row in enumerate(rows):
        bottom = float(_TOP + _MEMORY)
        for name, count in row.items():
            height = _MEMORY * count / most
            if count:
                bottom -= height
                made += _rectangle(_LEFT + number * width, bottom, 0.92 * width, height, COLORS[name],
                                   f"moment {number}: {name}, {bytes_text(count)}")
    limit = _TOP + _MEMORY * (1 - arena_bytes / most)
    made += _line(limit, ' stroke-width="2" stroke-dasharray="6 3"')
    made += _text(_LEFT - 8, limit + 10, "end", bytes_text(arena_bytes)) + _text(_LEFT - 8, _TOP + _MEMORY, "end", "0 B")
    return made + _line(_TOP + _MEMORY, ' stroke-opacity="0.5"')


def _lane(name: str, color: str, values: list[float], words: list[str], top: float) -> str:
    most = max(values, default=0.0)
    made = _text(_LEFT - 8, top + _BAR, "end", name) + _line(top + _BAR, ' stroke-opacity="0.5"')
    width = (_RIGHT - _LEFT) / max(len(values), 1)
    for number, value in enumerate(values):
        if value > 0:
            height = _BAR * value / most
            made += _rectangle(_LEFT + number * width, top + _BAR - height, 0.92 * width, height, color,
                               f"moment {number}: {words[number]}")
    return made


def plan_svg(plan: dict[str, Any] | None, arena_bytes: int) -> str:
    """Returns a stand-alone SVG for light and dark pages. The title of each rectangle describes it. Without a
    plan the SVG says that there is none."""
    title = "device memory over the moments of an iteration"
    made = _text(_LEFT, 18, "start", title)
    height = _TOP + _MEMORY + 3 * _LANE + 50
    if plan is None:
        made += _text(_LEFT, _TOP, "start", f"no plan; {bytes_text(arena_bytes)} of device memory")
    else:
        x = float(_LEFT)
        for name, color in COLORS.items():
            made += _rectangle(x, 30, 10, 10, color, name) + _text(x + 14, 39, "start", name)
            x += 40 + 7 * len(name)
        moments, chunks = plan["moments"], plan["chunks"]
        made += _memory(memory_of(plan), arena_bytes)
        up = [float(sum(chunks[load["chunk"]]["transfer_bytes"] for load in moment["loads"])) for moment in moments]
        down = [float(sum(chunks[drop["chunk"]]["gradient_bytes"] for drop in moment["drops"] if drop["becomes_gradient"]))
                for moment in moments]
        waits = [float(moment["stall_seconds"]) for moment in moments]
        top = _TOP + _MEMORY + 14.0
        made += _lane("to device", _UP, up, [f"{bytes_text(v)} to the device" for v in up], top)
        made += _lane("to host", _DOWN, down, [f"{bytes_text(v)} to the host" for v in down], top + _LANE)
        made += _lane("waits", _WAIT, waits, [f"waits {1e3 * v:.3g} ms" for v in waits], top + 2 * _LANE)
        made += _text((_LEFT + _RIGHT) / 2, top + 3 * _LANE + 16, "middle",
                      f"{len(moments)} moments: operators of the forward pass, then of the backward pass")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
            f'font-family="sans-serif" font-size="12"><title>{title}</title>\n{made}</svg>\n')
