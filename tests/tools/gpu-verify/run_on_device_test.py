#!/usr/bin/env python3
"""run_on_device_test.py PROGRAMS: tools/gpu-verify/run-on-device as a whole, on the driver without a GPU."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "tools/gpu-verify"
QUESTIONS = ["G1", "G4", "G7"]
# A little of each part; the parts have tests of their own.
LITTLE = {"GEMINID_CONFORMANCE_FLAGS": "--gtest_filter=*Memory*", "GEMINID_KERNEL_CHECK_FLAGS": "--no-timing --product-edge 24 --only product",
          "GEMINID_TRAINING_FLAGS": "--model gpt2-tiny --steps 2 --batch 2 --context 32"}
FAILED = 8


def run(script, folder, before=(), **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GEMINID_")}
    return subprocess.run([str(PROGRAMS / "geminid-with-double"), "--memory", "512", *before, str(script), str(folder),
                           *QUESTIONS], env=dict(environment, **LITTLE, **variables), capture_output=True, text=True, check=False)


class RunOnDevice(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.out = self.folder / "out"

    def read(self, name):
        return json.loads((self.out / name).read_text())

    def report(self):
        return (self.out / "report.txt").read_text().splitlines()

    def parts(self):
        """The report without the words of what failed."""
        return [line for line in self.report() if not line.startswith(" ")]

    def test_AsInTheTarball_RunsEveryPartAndLeavesWhatEachSaid(self):
        (self.folder / "bin").symlink_to(PROGRAMS)
        (self.folder / "gpu-verify").mkdir()
        for name in ("run-on-device", "train-on-device"):
            shutil.copy(SCRIPTS / name, self.folder / "gpu-verify")
        done = run(self.folder / "gpu-verify/run-on-device", self.out)
        self.assertEqual(done.returncode, 0, "\n".join([*self.report(), done.stdout, done.stderr]))
        results = self.read("results.json")
        self.assertEqual([probe["id"] for probe in results["probes"]], QUESTIONS)
        self.assertIn("not a GPU", results["gpu"])
        conformance = self.read("conformance.json")
        self.assertGreater(conformance["tests"], 0)
        self.assertEqual(conformance["failures"], 0)
        kernels = self.read("kernels.json")
        self.assertTrue(all(check["passed"] for check in kernels["checks"] + kernels["products"]))
        self.assertGreater(len(kernels["checks"]), 0)
        self.assertEqual(len(kernels["products"]), 5)
        self.assertTrue(self.read("training.json")["passed"])
        self.assertEqual(self.report(), ["questions: passed", "the driver's conformance: passed", "kernels: passed",
                                         "training: passed"])

    def test_KernelsThatCannotBeHad_FailAndTheOtherPartsStillRun(self):
        done = run(SCRIPTS / "run-on-device", self.out, ["env", "GEMINID_GPU_DOUBLE_KERNELS=/nowhere"],
                   GEMINID_PROGRAMS=str(PROGRAMS))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual([line.split(": ")[0] for line in self.parts()],
                         ["questions", "the driver's conformance", "kernels", "training"])
        self.assertEqual(self.parts()[:2], ["questions: passed", "the driver's conformance: passed"], self.report())
        self.assertEqual([line for line in self.parts()[2:] if line.endswith(": passed")], [])

    def test_PartThatFails_SaysWhyInTheReport(self):
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("geminid-gpu-verify", "geminid-driver-conformance", "geminid-train"):
            (programs / name).symlink_to(PROGRAMS / name)
        broken = programs / "geminid-kernel-check"
        broken.write_text(f"#!/bin/sh\necho '{{}}'\nseq 100 >&2\necho 'no kernel today' >&2\nexit {FAILED}\n")
        broken.chmod(0o755)
        (programs / "geminid").symlink_to("/bin/false")
        done = run(SCRIPTS / "run-on-device", self.out, GEMINID_PROGRAMS=str(programs))
        report = self.report()
        self.assertEqual(done.returncode, 1, report)
        kernels = report.index(f"kernels: exit status {FAILED}")
        self.assertEqual(report[kernels + 1:kernels + 13], [f"  {n}" for n in range(90, 101)] + ["  no kernel today"])
        self.assertEqual(self.read("kernels.json"), {})
        self.assertIn("daemon", "\n".join(report[report.index("training: exit status 1"):]))

    def test_QuestionThatFails_IsTheExitStatus(self):
        wrong = self.folder / "wrong"
        wrong.write_text(f"#!/bin/sh\necho 'G1 fail'\nexit {FAILED}\n")
        wrong.chmod(0o755)
        done = run(SCRIPTS / "run-on-device", self.out, GEMINID_GPU_VERIFY=str(wrong))
        self.assertEqual(done.returncode, FAILED)
        self.assertEqual(self.report(), [f"questions: exit status {FAILED}", "  G1 fail"])
        self.assertEqual((self.out / "results.txt").read_text(), "G1 fail\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
