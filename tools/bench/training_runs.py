"""Runs of geminid-train for the scripts of this folder. They train on random bytes that are always the same, and start
their own daemon."""

import json
import os
import random
import subprocess
import tempfile

OTHERS = ("GEMINID_SOCKET", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class Failed(Exception):
    """A run ended with an error; has its last lines."""


class Trainer:
    """Runs geminid-train in a folder that is removed at the end. `text`: a file to train on, or none."""

    def __init__(self, programs, text=None):
        self.program = os.path.join(programs, "geminid-train")
        self.folder = tempfile.TemporaryDirectory(prefix="geminid-bench.")
        self.text = text or os.path.join(self.folder.name, "text")

    def __enter__(self):
        if not os.path.exists(self.text):
            with open(self.text, "wb") as file:
                file.write(random.Random(1).randbytes(1 << 20).replace(b"\0", b"a"))  # a zero byte is no text
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def train(self, *flags):
        """Runs once and returns the report."""
        report = os.path.join(self.folder.name, "report.json")
        environment = {name: value for name, value in os.environ.items() if name not in OTHERS}
        done = subprocess.run([self.program, "--text", self.text, "--quiet", "--report", report, *flags], check=False,
                              env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failed(f"geminid-train ended with {done.returncode}: {done.stderr.strip()}")
        with open(report, encoding="utf-8") as file:
            return json.load(file)
