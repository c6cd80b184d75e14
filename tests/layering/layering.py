#!/usr/bin/env python3
"""layering.py ROOT: checks which folder may include which. Prints each violation and exits with 1 if any.

The rules are those of docs/architecture.md:
  1. include has the public headers. It includes no other folder; collectives, client and tools include it.
     base <- proto <- kernels <- collectives <- client <- training <- tools;  proto <- daemon <- tools.
     base <- gpu (the driver's tables) <- kernels, collectives, client, training and tools. In the daemon
     only its agent includes gpu: the daemon loads no driver.
  2. daemon/core and daemon/planner are pure: each includes only the standard library, Abseil,
     base, proto/shm and itself.
     The rooms (subfolders) of a folder have an order (ROOMS): a file includes its own room and earlier ones.
  3. Only gpu includes CUDA headers. Public headers include no header of gRPC, Protocol Buffers, Boost or CUDA,
     and of the project only each other.
  4. tools/trainer is a program: only its own files include it. training/ includes of the daemon only the
     planner. training_rooms.py has the rules for the rooms of both.
  5. No folders include each other in a circle, at any depth, tests/ included (circles.py).
  6. tests/ mirrors the tree: each folder of tests is a folder of the tree. A test named after a file
     lies no higher than that file. In kernels the tests of a room lie together.
  7. The wall clock is only for timestamps, in the files named here. Measured times and
     waits use base::MonotonicNow, base::Deadline or the steady clock. Timed waits of Abseil's
     Mutex and CondVar and of pthreads use the wall clock, so they count as uses, too.
  8. The root holds the folders and files of TOP_LEVEL, and no others.
"""

import collections
import pathlib
import re
import subprocess
import sys

import circles
import lengths
import training_rooms
import tree

TOP_LEVEL = set(tree.FOLDERS) | {
    ".ci", ".clang-format", ".clang-tidy", ".gitignore", "CHANGELOG.md", "CMakeLists.txt",
    "CMakePresets.json", "CONTRIBUTING.md", "LICENSE", "README.md", "deploy", "docs", "python", "tests"}

MAY_INCLUDE = {
    "include": {"include"},
    "base": {"base"},
    "gpu": {"base", "gpu"},
    "proto": {"base", "proto"},
    "kernels": {"base", "gpu", "proto", "kernels"},
    "collectives": {"include", "base", "gpu", "proto", "kernels", "collectives"},
    "client": {"include", "base", "gpu", "proto", "kernels", "collectives", "client"},
    "daemon": {"base", "gpu", "proto", "daemon"},
    "training": {"include", "base", "gpu", "proto", "kernels", "collectives", "client", "daemon",
                 "training"},
    "tools": {"include", "base", "gpu", "proto", "kernels", "collectives", "client", "daemon",
              "training", "tools"},
}
CUDA = re.compile(r"^(cuda|nccl|nvml|cub/|thrust/)")
CUDA_ALLOWED = re.compile(r"^gpu/")
GPU_IN_DAEMON = ("daemon/agent/",)
FOREIGN_IN_PUBLIC = re.compile(r"^(grpc|google/protobuf|boost/|cuda|geminid/v1/|.*\.pb\.h$)")
PURE = ("daemon/core/", "daemon/planner/")
# The rooms of a folder in order: each may include those before it.
ROOMS = {
    "client/zero": ("core", "basics", "options", "ranks", "state", "update", "residency", "values",
                    "step", "engine"),
    "daemon/core": ("basics", "accounts", "chunks", "jobs", "transfers", "records", "engine"),
    "tools/geminictl": ("output", "daemon", "doctor", "plan", "screen", "commands", "program"),
    "daemon/service": ("tenants", "heritage", "sessions", "watch", "calls", "entry"),
}
# Headers of base that call the system. Pure rooms may not include them.
SYSTEM_IN_BASE = {"base/clock.h", "base/deadline.h", "base/files.h", "base/job_signals.h",
                  "base/machine_memory.h", "base/mapping.h", "base/memfd.h",
                  "base/process_limits.h", "base/standard_streams.h",
                  "base/start_thread.h", "base/system_error.h", "base/unique_fd.h"}
# The only files that may include tools/trainer.
USERS_OF_TRAINER = ("tools/trainer/",)
FOREIGN_IN_TRAINING = re.compile(r"^(grpc|.*\.grpc\.pb\.h$|daemon/(?!planner/))")
# Folders of tests that test the whole tree, or its build, instead of one folder.
TESTS_OF_THEIR_OWN = {"tests/end_to_end", "tests/hostile", "tests/simulation"}
WALL_CLOCK = re.compile(
    r"\babsl::Now\b|\bGetCurrentTimeNanos\b|\b(?:system|high_resolution|utc|file)_clock\b"
    r"|\bCLOCK_(?:REALTIME|TAI)\w*|\bgettimeofday\b|\btimespec_get\b|\bstd::time\(|\bftime\("
    r"|(?<![\w.>:])(?:::)?time\((?:nullptr|NULL|0|&)"
    r"|\b(?:pthread_cond_timedwait|pthread_mutex_timedlock|sem_timedwait|mq_timed\w+)\b"
    r"|\b(?:Wait|Await|LockWhen|ReaderLockWhen|WaitForNotification)With(?:Deadline|Timeout)\b")
READS_WALL_CLOCK = {
    "base/clock.h",            # WallClockNow itself
    "daemon/os/log.cc",        # timestamps of log lines, without Abseil's time zones
    "proto/rpc/steady_waits/futex_wait.cc",  # makes timed waits monotonic
    "tools/gpu-verify/run.cc",  # uses no other file of the project
}
STAMPS = {
    "daemon/service/entry/reloader.cc",      # metrics: start time and time of the last configuration
    "daemon/service/watch/monitor.cc",       # metrics: time at which a job's wait began
    "tools/geminictl/commands/bundle.cc",  # the name of the bundle
    "training/run/gather_report.cc",   # timestamps in the run's log
    "training/run/run_reporter.cc",    # the name of the log for TensorBoard
}
SYSTEM_IN_CORE = re.compile(r"^[a-z0-9_]+$")  # <vector>, not <sys/mman.h> or <dnnl.hpp>


def folder_of(included):
    """Returns the top folder of an include. Public headers are included as geminid/x.h."""
    top = included.split("/")[0]
    if top == "geminid" and not included.startswith("geminid/v1/"):
        return "include"
    if included.startswith("geminid/v1/"):
        return "proto"
    return top if top in MAY_INCLUDE else None


def violations_of(path, text):
    """Yields each violation in the includes of the file at `path`, relative to the root."""
    top = path.split("/")[0]
    if top not in MAY_INCLUDE:
        return
    for bracket, included in tree.INCLUDE.findall(text):
        folder = folder_of(included)
        if folder is not None and folder not in MAY_INCLUDE[top]:
            yield f"{path}: {top} must not include {folder}: {included}"
        for room in PURE:
            allowed = included.startswith((room, "absl/", "base/", "proto/shm/")) or (
                bracket == "<" and SYSTEM_IN_CORE.match(included))
            allowed = allowed and included not in SYSTEM_IN_BASE
            if path.startswith(room) and not allowed:
                yield f"{path}: {room} is pure; it must not include {included}"
        if top == "daemon" and folder == "gpu" and not path.startswith(GPU_IN_DAEMON):
            yield f"{path}: of the daemon only its agent knows a driver: {included}"
        if CUDA.match(included) and not CUDA_ALLOWED.match(path):
            yield f"{path}: CUDA headers belong behind the device seam: {included}"
        if (top == "tools" and included.startswith("tools/trainer/")
                and not path.startswith(USERS_OF_TRAINER)):
            yield f"{path}: the trainer is a program, not a library: {included}"
        if path.startswith("training/") and FOREIGN_IN_TRAINING.match(included):
            yield f"{path}: training needs no daemon and no gRPC: {included}"
        if path.startswith("include/"):
            if FOREIGN_IN_PUBLIC.match(included) or (
                    folder is not None and not included.startswith("geminid/")):
                yield f"{path}: a public header must not include {included}"


def rooms_upward(path, text):
    """Yields each include of the file at `path` that names a later room of its folder, or no room."""
    for house, rooms in ROOMS.items():
        if not path.startswith(house + "/"):
            continue
        room = path[len(house) + 1:].split("/")[0]
        if room not in rooms:
            yield f"{path}: {house} has the rooms {', '.join(rooms)}; put the file into one"
            continue
        for _, included in tree.INCLUDE.findall(text):
            if not included.startswith(house + "/"):
                continue
            other = included[len(house) + 1:].split("/")[0]
            if other not in rooms or rooms.index(other) > rooms.index(room):
                yield f"{path}: {house}/{room} stands before {other}; it must not include {included}"


def wall_clocks(path, text):
    """Yields each forbidden use of the wall clock in the file at `path`."""
    if path.startswith("tests/"):
        return
    code = lengths.code_of(text)
    if path not in READS_WALL_CLOCK:
        for found in WALL_CLOCK.findall(code):
            yield f"{path}: the wall clock may step; measure by base/clock.h: {found.strip()}"
    if path not in STAMPS | READS_WALL_CLOCK and "WallClockNow" in code:
        yield f"{path}: WallClockNow is for stamps; if this is one, name the file in layering.py"


def misplaced_tests(tests, sources):
    """Yields each folder of `tests` that mirrors no folder of `sources`, and each test that lies above
    the file that it is named after. All paths are relative to the root."""
    folders = {parent for path in sources for parent in tree.parents_of(path)}
    for folder in sorted({test.rsplit("/", 1)[0] for test in tests} - TESTS_OF_THEIR_OWN):
        mirrored = folder.removeprefix("tests/")
        if mirrored not in folders:
            yield f"{folder}: tests/ mirrors the tree, and there is no folder {mirrored} in it"
    homes = collections.defaultdict(set)
    for path in sources:
        file = pathlib.PurePosixPath(path)
        homes[file.stem].add(file.parent.as_posix())
    for test in sorted(tests):
        file = pathlib.PurePosixPath(test).relative_to("tests")
        folder, found = file.parent.as_posix(), homes[file.stem.removesuffix("_test")]
        below = sorted(home for home in found if home.startswith(folder + "/"))
        if below and folder not in found and not folder.startswith("kernels/"):
            yield f"{test}: what it tests lies in {below[0]}"


def strays(paths):
    """Yields each of `paths`, relative to the root, whose first part does not belong there."""
    for name in sorted({path.split("/")[0] for path in paths} - TOP_LEVEL):
        yield f"{name}: the root holds no such file or folder; if it should, name it in layering.py"


def tracked(root):
    """The paths that git knows, or none if `root` is no checkout."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=False)
    return listed.stdout.rstrip("\0").split("\0") if listed.returncode == 0 and listed.stdout else []


def check(root):
    texts = tree.read_sources(root, tree.FOLDERS + ("tests",))
    found = [v for path, text in texts.items() for v in violations_of(path, text)]
    found += [v for path, text in texts.items() for v in rooms_upward(path, text)]
    found += [v for path, text in texts.items() for v in wall_clocks(path, text)]
    found += circles.circles_of(tree.includes_of(texts))
    if any(path.startswith(training_rooms.TREES) for path in texts):
        found += training_rooms.violations_of(texts, training_rooms.lists_of(root))
    tests = [path for path in texts if path.startswith("tests/") and path.endswith("_test.cc")]
    found += misplaced_tests(tests, texts.keys() - tests)
    found += strays(tracked(root))
    return len(texts), found


def main():
    files, found = check(pathlib.Path(sys.argv[1]))
    for violation in found:
        print(violation)
    print(f"{files} files, {len(found)} violations")
    return 1 if found or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
