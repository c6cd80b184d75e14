"""Finds circles of includes between folders, at every depth of the tree."""

import collections
import tree

OWN_FILES = "its own files"


def circles_of(includes):
    """Yields a message for each group of folders that include each other in a circle.

    Within each folder, each direct subfolder with all of its contents is one node. The folder's own files
    together are one more node. So a folder's own files stand above its subfolders or below
    them, never both.
    """
    within = collections.defaultdict(lambda: collections.defaultdict(dict))
    for file, included in includes:
        for parent in set(tree.parents_of(file)) & set(tree.parents_of(included)):
            a, b = node_of(parent, file), node_of(parent, included)
            if a != b:
                within[parent][a].setdefault(b, (file, included))
    for parent in sorted(within):
        arrows = within[parent]
        seen = set()
        for start in sorted(arrows):
            group = {node for node in reached_from(start, arrows)
                     if start in reached_from(node, arrows)}
            if start in seen or not group:
                continue
            seen |= group
            yield message_of(parent, arrows, group)


def node_of(parent, file):
    inside = file[len(parent) + 1:] if parent else file
    return inside.split("/")[0] if "/" in inside else OWN_FILES


def reached_from(start, arrows):
    """Returns the nodes that a path of at least one arrow from `start` reaches."""
    reached, waiting = set(), list(arrows.get(start, ()))
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting += arrows.get(node, ())
    return reached


def smallest_circle(arrows, start):
    """Returns the nodes of a shortest path from `start` to itself, or None."""
    ways = collections.deque([[start]])
    seen = set()
    while ways:
        way = ways.popleft()
        for node in sorted(arrows.get(way[-1], ())):
            if node == start:
                return way + [start]
            if node not in seen:
                seen.add(node)
                ways.append(way + [node])
    return None


def message_of(parent, arrows, group):
    circle = min((smallest_circle(arrows, node) for node in sorted(group)), key=len)
    lines = [f"{parent or 'the tree'}: a circle between {', '.join(sorted(group))}"]
    for a, b in zip(circle, circle[1:]):
        file, included = arrows[a][b]
        lines.append(f"  {a} -> {b}: {file} includes {included}")
    return "\n".join(lines)
