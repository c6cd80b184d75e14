"""Small runs of geminid-train for the tests in this folder. Each run has a new folder."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PATIENCE_SECONDS = 120
PROGRAMS = pathlib.Path(sys.argv[1]) if len(sys.argv) > 2 else None
STEPPING_CLOCK = sys.argv[2] if len(sys.argv) > 2 else None
FEW_THREADS = sys.argv[3] if len(sys.argv) > 3 else None
LAUNCHERS = ("RANK", "WORLD_SIZE", "OMPI_", "PMI_", "SLURM_", "GEMINID_")
FOREVER = "1000000"


def usual_signals():
    """Call it in the child: resets signals, because a shell that runs tests in the background ignores some."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def descendants_of(pid):
    """Returns the process's children and all of their descendants."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants_of(int(child))]
    return found


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = self.folder / "text"
        self.text.write_text("".join(f"{number:04}\n" for number in range(1, 4001)))
        self.save = self.folder / "save"
        self.report = self.folder / "report.json"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(LAUNCHERS)}
        # Few threads, because other tests share the machine.
        self.usual = ["--text", self.text, "--model", "gpt2-tiny", "--warmup-steps", "0",
                      "--threads", "1", "--host-memory", "256MiB", "--device-memory", "64MiB"]

    def start(self, *arguments, environment=None, before=usual_signals, **streams):
        command = [PROGRAMS / "geminid-train", *self.usual, *arguments]
        streams.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen([str(word) for word in command], cwd=self.folder,
                                   env={**self.environment, **(environment or {})},
                                   stdin=subprocess.DEVNULL, preexec_fn=before, **streams)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()

    def saved(self):
        return sorted(folder.name for folder in self.save.glob("step-*"))

    def await_that(self, condition, process, what):
        until = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self.assertIsNone(process.poll(), f"ended before {what}")
            self.assertLess(time.monotonic(), until, f"no {what}")
            time.sleep(0.02)

    def await_word(self, process, word):
        """Reads the process's standard error until a line has the word."""
        for line in process.stderr:
            if word in line.decode():
                return
        self.fail(f"ended before it said {word}: {process.wait()}")

    def code_of(self, process):
        if process.stderr is None:
            return process.wait(PATIENCE_SECONDS)
        self.said = process.communicate(timeout=PATIENCE_SECONDS)[1].decode()
        return process.returncode

    def read_report(self):
        return json.loads(self.report.read_text())


def main():
    program = unittest.main(argv=sys.argv[:1], exit=False, verbosity=2)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.1f} s of a processor")
    sys.exit(0 if program.result.wasSuccessful() else 1)
