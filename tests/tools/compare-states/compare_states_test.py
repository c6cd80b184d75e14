"""Tests tools/compare-states with a fake trainer that prints the losses that the test chooses."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).parents[3] / "tools" / "compare-states"
TASK = "sums, llama-tiny, adamw"

TRAINER = """#!{python}
import json, os, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert "=" in open(flags["--text"]).readline()
loss = json.loads(os.environ["LOSSES"])[flags["--state-dtype"]]
if loss is None:
    sys.exit("geminid-train: it rains")
with open(flags["--report"], "w") as file:
    json.dump({{"loss": [9.0] + [loss] * 60, "model_state_bytes": 800}}, file)
"""


class CompareStates(unittest.TestCase):
    def compare(self, fp32, bf16, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            trainer = pathlib.Path(folder) / "geminid-train"
            trainer.write_text(TRAINER.format(python=sys.executable))
            trainer.chmod(trainer.stat().st_mode | stat.S_IXUSR)
            return subprocess.run([sys.executable, TOOL, "--task", TASK, *arguments],
                                  env=os.environ | {"GEMINID_BIN": folder, "LOSSES": json.dumps({"fp32": fp32, "bf16": bf16})},
                                  capture_output=True, text=True)

    def test_loss_within_the_tolerance_or_lower_is_well(self):
        for bf16 in (2.0, 2.09, 1.0):
            done = self.compare(2.0, bf16)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"| {TASK} | 9.000 | 2.0000 | {bf16:.4f} | {bf16 / 2:.4f} | 1.00 |", done.stdout)

    def test_loss_that_is_higher_or_no_number_fails(self):
        for bf16 in (2.11, float("nan")):
            self.assertEqual(self.compare(2.0, bf16).returncode, 1)
        self.assertEqual(self.compare(2.0, 2.11, "--tolerance", "0.1").returncode, 0)

    def test_run_that_fails_says_its_last_words(self):
        done = self.compare(2.0, None, "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)[0]["failed"], "bf16: exit code 1: geminid-train: it rains")

    def test_wrong_usage_is_2(self):
        self.assertEqual(self.compare(2.0, 2.0, "--steps", "0").returncode, 2)


if __name__ == "__main__":
    unittest.main()
