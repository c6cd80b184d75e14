#!/usr/bin/env python3
"""predict_test.py PROGRAMS: tools/gpu-verify/predict reports a prediction that the programs no longer make."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[3]
FILE = "docs/gpu-predictions.json"


class Predict(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        (self.root / "docs").mkdir()
        shutil.copy(ROOT / FILE, self.root / FILE)

    def check(self, programs=PROGRAMS):
        return subprocess.run([str(ROOT / "tools/gpu-verify/predict"), programs, "--check", "--root", str(self.root)],
                              capture_output=True, text=True, check=False)

    def test_Predictions_AreWhatTheProgramsSay(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_OtherPrediction_IsFound(self):
        text = (self.root / FILE).read_text()
        (self.root / FILE).write_text(text.replace("0.968", "0.97", 1))
        done = self.check()
        self.assertEqual(done.returncode, 8)
        self.assertIn("0.968", done.stderr)
        (self.root / FILE).unlink()
        self.assertEqual(self.check().returncode, 8)

    def test_ProgramThatSaysNothing_IsNoPrediction(self):
        for name in ("geminictl", "geminid-sim"):
            (self.root / name).symlink_to("/bin/false")
        self.assertEqual(self.check(str(self.root)).returncode, 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
