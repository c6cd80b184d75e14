"""paths_test.py GEMINICTL GEMINID_SIM GEMINID GEMINID_TRAIN

Gives every flag that takes a path the paths that a person might type. No program may end by a signal, an abort
or an uncaught exception, hang, or take much memory. Each failure must print its reason.
"""

import os
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE_SECONDS = 60
MOST_RESIDENT_KIB = 600 << 10  # far below the gigabyte of zeros, above a sanitizer's own memory
TEXT_KIB = 1 << 20             # a text is read into memory before it is checked
ABORTED = ("terminate called", "Assertion", "Traceback", "AddressSanitizer", "runtime error")
NOBODY = 65534

# The exit code for each kind of path, of a program that reads, writes and so on.
READS = {"folder": 2, "empty": 2, "zeros": 2, "endless": 2, "fifo": 2, "deep": 2, "missing": 4,
         "no/such": 4, "unreadable": 5}
WRITES = {"folder": 2, "empty": 0, "zeros": 0, "deep": 0, "missing": 0, "no/such": 4}
CONNECTS = {"folder": 3, "empty": 3, "zeros": 3, "endless": 3, "fifo": 3, "missing": 3}
CONFIGURES = {"folder": 78, "empty": 0, "zeros": 78, "endless": 78, "fifo": 78, "deep": 78,
              "missing": 78, "no/such": 78}
LOADS = {**READS, "folder": 4, "unreadable": 2}
SAVES = {"folder": 0, "empty": 2, "zeros": 2, "fifo": 2, "endless": 2, "loop": 2, "deep": 2,
         "missing": 0, "no/such": 0, "empty/x": 2, "x" * 300: 2}
EXPORTS = {"folder": 2, "empty": 2, "zeros": 2, "fifo": 2, "endless": 2, "deep": 2, "missing": 0,
           "no/such": 0}
LOGS = {"folder": 2, "empty": 0, "zeros": 2, "fifo": 2, "endless": 2, "deep": 2, "missing": 0,
        "no/such": 4}
BOARDS = {"folder": 0, "empty": 2, "zeros": 2, "fifo": 2, "endless": 2, "missing": 0, "no/such": 0}
USAGE = {"geminictl": 2, "geminid-sim": 2, "geminid-train": 2, "geminid": 64}
LEARNS = {**READS, "deep": 0}

PLAN = ["plan", "--hardware", "h200"]
RUN = ["run", "--random", "chain:1"]
TRAIN = ["--model", "gpt2-tiny", "--steps", "1"]

# (program, arguments with PATH in place of the path, the file's extension, exit codes).
FLAGS = [
    ("geminictl", PLAN + ["--config", "PATH"], ".json", {**READS, "folder": 4}),
    ("geminictl", PLAN + ["--trace", "PATH"], ".pb", READS),
    ("geminictl", PLAN + ["--trace", "PATH"], ".json", READS),
    ("geminictl", PLAN + ["--trace", "PATH"], ".textproto", READS),
    ("geminictl", ["plan", "--model", "gpt2-tiny", "--device-memory", "64MiB", "--save-trace",
                   "PATH"], ".pb", WRITES),
    ("geminictl", ["trace", "show", "PATH"], ".json", READS),
    ("geminictl", ["--socket", "PATH", "--timeout", "1", "trace", "save", "--output", "saved.pb"],
     "", CONNECTS),
    ("geminictl", ["--socket", "PATH", "--timeout", "1", "status"], "", CONNECTS),
    ("geminid-sim", ["run", "--trace", "PATH"], ".textproto", READS),
    ("geminid-sim", RUN + ["--timeline", "PATH"], ".json", WRITES),
    ("geminid-sim", RUN + ["--memory-picture", "PATH"], ".svg", WRITES),
    ("geminid", ["--check-config", "--config", "PATH"], ".textproto", CONFIGURES),
    ("geminid-train", TRAIN + ["--text", "PATH"], "", LEARNS),
    ("geminid-train", TRAIN + ["--shards", "PATH"], ".bin", {**READS, "zeros": 0}),
    ("geminid-train", TRAIN + ["--text", "../text", "--export", "PATH"], "", EXPORTS),
    ("geminid-train", TRAIN + ["--text", "../text", "--log", "PATH"], ".jsonl", LOGS),
    ("geminid-train", TRAIN + ["--text", "../text", "--tensorboard", "PATH"], "", BOARDS),
    ("geminid-train", ["generate", "--prompt", "x", "--load", "PATH"], "", LOADS),
    ("geminid-train", TRAIN + ["--text", "../text", "--socket", "PATH"], "", CONNECTS),
    ("geminid-train", TRAIN + ["--text", "../text", "--report", "PATH"], ".json", WRITES),
    ("geminid-train", TRAIN + ["--text", "../text", "--load", "PATH"], "", LOADS),
    ("geminid-train", TRAIN + ["--text", "../text", "--save", "PATH"], "", SAVES),
    ("geminid-train", TRAIN + ["--text", "../text", "--save", "PATH", "--resume"], "", SAVES),
]


def make_paths(folder, extension):
    """Makes the paths and returns them by kind."""
    def at(name):
        return os.path.join(folder, name + extension)

    os.mkdir(at("folder"))
    open(at("empty"), "wb").close()
    with open(at("zeros"), "wb") as zeros:
        zeros.truncate(1 << 30)
    os.mkfifo(at("fifo"))
    os.symlink("/dev/zero", at("endless"))
    os.symlink(at("loop"), at("loop"))
    for name, text in (("deep", "[" * 100000), ("unreadable", "x")):
        with open(at(name), "w", encoding="ascii") as file:
            file.write(text)
    os.chmod(at("unreadable"), 0)
    kinds = ("folder", "empty", "zeros", "fifo", "endless", "loop", "deep", "unreadable",
             "missing", "no/such", "empty/x", "x" * 300)
    return {**{kind: at(kind) for kind in kinds}, "nothing": ""}


def drain(pipe, into):
    into.append(pipe.read(1 << 20))
    while pipe.read(1 << 20):
        pass


def run(program, arguments, folder, user):
    """Returns the exit status (negative: signal; None: it hung), the output, and the peak resident KiB."""
    child = subprocess.Popen([program] + arguments, cwd=folder, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             user=user, env=dict(os.environ, TMPDIR=folder))
    said = []
    reader = threading.Thread(target=drain, args=(child.stderr, said))
    reader.start()
    descriptor = os.pidfd_open(child.pid)
    hung = not select.select([descriptor], [], [], PATIENCE_SECONDS)[0]
    if hung:
        child.kill()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    os.close(descriptor)
    reader.join()
    child.stderr.close()
    return None if hung else child.returncode, said[0].decode(errors="replace"), usage.ru_maxrss


def problem_with(status, said, resident, most_resident, expected):
    if status is None:
        return "hangs"
    if status < 0 or status >= 128:
        return f"ends by a signal or an abort ({status})"
    if any(word in said for word in ABORTED):
        return "ends by an exception"
    if resident > most_resident:
        return f"takes {resident >> 10} MiB"
    if expected is not None and status != expected:
        return f"ends with {status}, not with {expected}"
    if status != 0 and not said.strip():
        return "fails without a word"
    return None


def judge(program, arguments, kind, expected, folder):
    """Returns the problem with the program's answer, or None."""
    as_nobody = kind == "unreadable" and os.geteuid() == 0  # root may read everything
    try:
        status, said, resident = run(program, arguments, folder, NOBODY if as_nobody else None)
    except PermissionError:
        return None  # other users cannot reach the program's folder
    is_text = "--text" in arguments and arguments[arguments.index("--text") + 1].endswith("zeros")
    most_resident = MOST_RESIDENT_KIB + (TEXT_KIB if is_text else 0)
    problem = problem_with(status, said, resident, most_resident, expected)
    return problem and f"{problem}\n{said[:500]}"


def main():
    programs = {os.path.basename(path): os.path.abspath(path) for path in sys.argv[1:]}
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o022)  # the user nobody reads the files made here, too
    folder = tempfile.mkdtemp(prefix="paths.")
    os.chmod(folder, 0o755)
    failures = 0
    began = time.monotonic()
    try:
        with open(os.path.join(folder, "text"), "w", encoding="ascii") as text:
            text.write("to be or not to be\n" * 1000)
        for program, flags, extension, codes in FLAGS:
            codes = {**codes, "nothing": USAGE[program]}
            given = os.path.join(folder, "given")
            os.mkdir(given)
            for kind, path in make_paths(given, extension).items():
                arguments = [path if flag == "PATH" else flag for flag in flags]
                problem = judge(programs[program], arguments, kind, codes.get(kind), given)
                if problem is not None:
                    failures += 1
                    print(f"{program} {' '.join(arguments)}: {problem}")
            shutil.rmtree(given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{failures} failures, {time.monotonic() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
