"""Tests tools/compare-meshes with a fake trainer that prints the losses that the test chooses."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).parents[3] / "tools" / "compare-meshes"

TRAINER = """#!{python}
import json, os, sys
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
losses = json.loads(os.environ["LOSSES"])[flags["--parallel"]]
if losses is None:
    sys.exit("geminid-train: it rains")
with open(flags["--report"], "w") as file:
    json.dump({{"loss": losses}}, file)
"""


class CompareMeshes(unittest.TestCase):
    def compare(self, losses, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            trainer = pathlib.Path(folder) / "geminid-train"
            trainer.write_text(TRAINER.format(python=sys.executable))
            trainer.chmod(trainer.stat().st_mode | stat.S_IXUSR)
            meshes = [word for mesh in losses if mesh != "data=1" for word in ("--mesh", mesh)]
            return subprocess.run([sys.executable, TOOL, "--text", "any", *meshes, *arguments],
                                  env=os.environ | {"GEMINID_BIN": folder, "LOSSES": json.dumps(losses)},
                                  capture_output=True, text=True)

    def test_losses_within_the_tolerance_are_well(self):
        done = self.compare({"data=1": [5.0, 4.0], "tensor=3d:8": [5.0, 4.00004]})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"tensor=3d:8 +5\.000000 +4\.000040 +1\.0e-05 ")
        self.assertNotIn("TOO FAR", done.stdout)

    def test_a_loss_that_is_too_far_away_is_named_and_fails(self):
        for wrong in ([5.0, 4.0004], [5.0004, 4.0], [5.0, float("nan")], [5.0]):
            done = self.compare({"data=1": [5.0, 4.0], "data=2": [5.0, 4.0], "pipeline=2": wrong})
            self.assertEqual(done.returncode, 1)
            far = [line.split()[0] for line in done.stdout.splitlines() if "TOO FAR" in line]
            self.assertEqual(far, ["pipeline=2"])

    def test_a_run_that_fails_says_its_last_words(self):
        done = self.compare({"data=1": [5.0], "data=2": None, "pipeline=2": [5.0]})
        self.assertEqual(done.returncode, 1)
        self.assertIn("exit code 1: geminid-train: it rains", done.stdout)
        self.assertIn("pipeline=2", done.stdout)

    def test_without_one_rank_there_is_nothing_to_compare_with(self):
        done = self.compare({"data=1": None, "data=2": [5.0]}, "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual([run["mesh"] for run in json.loads(done.stdout)["runs"]], ["data=1"])

    def test_wrong_usage_is_2(self):
        self.assertEqual(self.compare({"data=1": [5.0]}, "--steps", "0").returncode, 2)


if __name__ == "__main__":
    unittest.main()
