"""Checks the rooms (folders) of training/ and of the trainer: which room includes which, and that the libraries agree.

  1. Each folder with sources below training/ and tools/trainer is a room and has a row here. A room includes
     only the rooms of its row. The rows stand in the order of the layers: includes go one way.
  2. Each room in a row is included by a source.
  3. A room is one library, which links exactly the libraries of the rooms in its row. Its
     CMakeLists.txt begins with the purpose of the room.
  4. A room has at most 45 files, and tools/trainer with its flags at most 4700 lines.
  5. Other programs include only the rooms of their row.
"""

import collections
import re

import tree

TREES = ("training/", "tools/trainer/")
ROOMS = {
    "training/models": set(),
    "training/forecast": {"training/models"},
    "training/goodput": set(),
    "training/nn/parallel": set(),
    "training/nn/parallel/sequence": {"training/nn/parallel"},
    "training/nn/parallel/tensor": {"training/nn/parallel", "training/nn/parallel/sequence"},
    "training/nn/parallel/experts": {"training/nn/parallel"},
    "training/nn/parallel/stages": {"training/nn/parallel"},
    "training/nn": {"training/forecast", "training/models", "training/nn/parallel",
                    "training/nn/parallel/sequence", "training/nn/parallel/tensor"},
    "training/meshes": {"training/forecast", "training/nn/parallel/sequence", "training/nn/parallel/stages",
                        "training/nn/parallel/tensor"},
    "training/transformer": {"training/forecast", "training/models", "training/nn",
                             "training/nn/parallel", "training/nn/parallel/experts",
                             "training/nn/parallel/sequence", "training/nn/parallel/tensor"},
    "training/data": {"training/models", "training/nn", "training/nn/parallel/sequence"},
    "training/launch": set(),
    "training/logs": set(),
    "training/settings": {"training/data", "training/forecast", "training/launch", "training/logs",
                          "training/meshes", "training/models", "training/nn",
                          "training/nn/parallel/sequence", "training/nn/parallel/stages",
                          "training/nn/parallel/tensor", "training/transformer"},
    "training/ranks": {"training/data", "training/goodput", "training/launch", "training/logs", "training/models", "training/nn",
                       "training/nn/parallel", "training/nn/parallel/tensor", "training/settings"},
    "training/scaling": {"training/data", "training/launch", "training/ranks", "training/settings"},
    "training/engines": {"training/data", "training/logs", "training/meshes", "training/models", "training/nn",
                         "training/nn/parallel", "training/nn/parallel/sequence",
                         "training/nn/parallel/stages", "training/nn/parallel/tensor", "training/ranks",
                         "training/settings", "training/transformer"},
    "training/run": {"training/data", "training/engines", "training/goodput", "training/launch", "training/logs",
                     "training/ranks", "training/scaling", "training/settings"},
    "tools/trainer/flags": {"training/data", "training/launch", "training/models", "training/settings"},
    "tools/trainer": {"tools/trainer/flags", "training/data", "training/engines", "training/goodput",
                      "training/launch",
                      "training/logs", "training/models", "training/nn", "training/ranks", "training/run",
                      "training/scaling", "training/settings", "training/transformer"},
}
PROGRAMS = {
    "tools/bench": {"training/nn/parallel/stages", "training/nn/parallel/tensor"},
    "tools/geminictl": {"training/forecast", "training/meshes"},
    "tools/sim": {"training/forecast", "training/launch"},
}
FILES_MAX = 45
TRAINER_LINES_MAX = 4700
LIBRARY = re.compile(r"geminid_library\((\w+)\s+(.*?)\)", re.DOTALL)


def library_of(room):
    """Returns the name of a room's library: its path in words."""
    return "geminid_" + room.removeprefix("tools/").replace("/", "_")


def folder_of(path):
    return path.rsplit("/", 1)[0]


def wrong_order(rooms=None):
    """Yields each room that appears in its own row or in a row above."""
    seen = set()
    for room, row in (rooms or ROOMS).items():
        for other in sorted(row - seen):
            yield f"training_rooms.py: {room} may include {other} only if its row stands below"
        seen.add(room)


def wrong_includes(texts):
    """Yields each difference between the rows and the includes of the files in `texts`, by path."""
    used = collections.defaultdict(set)
    for path, text in texts.items():
        folder = folder_of(path)
        if path.startswith(TREES) and folder not in ROOMS:
            yield f"{path}: {folder} is no room; give it a row in training_rooms.py"
            continue
        row = ROOMS.get(folder) if folder in ROOMS else PROGRAMS.get("/".join(folder.split("/")[:2]), set())
        for _, included in tree.INCLUDE.findall(text):
            room = folder_of(included) if "/" in included else ""
            if room not in ROOMS or room == folder or path.startswith("tests/"):
                continue
            used[folder].add(room)
            if room not in row:
                yield f"{path}: {folder} must not include {room}: {included}"
    for room in ROOMS:
        for other in sorted(ROOMS[room] - used[room]):
            yield f"training_rooms.py: nothing in {room} includes {other}; take it out of the row"


def wrong_libraries(lists):
    """Yields each violation in the libraries of `lists`, the texts of CMakeLists.txt by room."""
    names = {library_of(room): room for room in ROOMS}
    for room, row in ROOMS.items():
        text = lists.get(room, "")
        found = {name: set(words.split()) for name, words in LIBRARY.findall(text)}
        if list(found) != [library_of(room)]:
            yield f"{room}/CMakeLists.txt: a room is one library, {library_of(room)}"
            continue
        if not re.search(r"^#.*\ngeminid_library", text, re.MULTILINE):
            yield f"{room}/CMakeLists.txt: say above the library what the room is for"
        linked = {names[word] for word in found[library_of(room)] if word in names}
        for other in sorted(row - linked):
            yield f"{room}/CMakeLists.txt: includes {other}, so link {library_of(other)}"
        for other in sorted(linked - row):
            yield f"{room}/CMakeLists.txt: nothing includes {other}, so do not link {library_of(other)}"


def too_large(texts):
    """Yields each room with too many files, and the trainer if it has too many lines."""
    files = collections.Counter(folder_of(path) for path in texts if path.startswith(TREES))
    for room, count in sorted(files.items()):
        if count > FILES_MAX:
            yield f"{room}: {count} files; a room has at most {FILES_MAX}, so make two of it"
    lines = sum(text.count("\n") for path, text in texts.items() if path.startswith("tools/trainer/"))
    if lines > TRAINER_LINES_MAX:
        yield f"tools/trainer: {lines} lines of at most {TRAINER_LINES_MAX}; what it knows belongs in a room"


def violations_of(texts, lists):
    texts = {path: text for path, text in texts.items() if path.startswith(("training/", "tools/"))}
    return [*wrong_order(), *wrong_includes(texts), *wrong_libraries(lists), *too_large(texts)]


def lists_of(root):
    """Returns the text of each room's CMakeLists.txt."""
    files = {room: root / room / "CMakeLists.txt" for room in ROOMS}
    return {room: file.read_text() for room, file in files.items() if file.exists()}
