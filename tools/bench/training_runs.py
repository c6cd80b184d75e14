"""Runs of geminid-train that a script of this folder measures: on random bytes that are always the same, with no daemon but
their own."""

import json
import os
import random
import subprocess
import tempfile

OTHERS = ("GEMINID_SOCKET", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class Failed(Exception):
    """A run ended with an error; its last words."""


class Trainer:
    """Its folder goes with it. `text`: a file to train on, or none."""

    def __init__(self, programs, text=None):
        self.program = os.path.join(programs, "geminid-train")
        self.folder = tempfile.TemporaryDirectory(prefix="geminid-bench.")
        self.text = text or os.path.join(self.folder.name, "text")

    def __enter__(self):
        if not os.path.exists(self.text):
            with open(self.text, "wb") as file:
                file.write(random.Random(1).randbytes(1 << 20).replace(b"\0", b"a"))  # a zero is no text
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def train(self, *flags):
        """The report of a run."""
        report = os.path.join(self.folder.name, "report.json")
        environment = {name: value for name, value in os.environ.items() if name not in OTHERS}
        done = subprocess.run([self.program, "--text", self.text, "--quiet", "--report", report, *flags], check=False,
                              env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failed(f"geminid-train ended with {done.returncode}: {done.stderr.strip()}")
        with open(report, encoding="utf-8") as file:
            return json.load(file)
