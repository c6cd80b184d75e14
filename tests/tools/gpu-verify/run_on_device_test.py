#!/usr/bin/env python3
"""run_on_device_test.py PROGRAMS: tools/gpu-verify/run-on-device as a whole, on the driver without a GPU."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "tools/gpu-verify"
QUESTIONS = ["G1", "G4", "G7"]
# A little of each part, which have tests of their own; and ten times the usual time, for processors that are busy.
LITTLE = {"GEMINID_RUN_SECONDS": "5300", "GEMINID_TORCH_PYTHON": "/nowhere/python",
          "GEMINID_CONFORMANCE_FLAGS": "--gtest_filter=*Memory*", "GEMINID_KERNEL_CHECK_FLAGS": "--no-timing --product-edge 24 --only product",
          "GEMINID_DEVICE_FLAGS": "--gtest_filter=*Sum*/Cuda", "GEMINID_MEASURE_FLAGS": "--tiny --only B1,B5,B10",
          "GEMINID_TRAINING_FLAGS": "--model gpt2-tiny --steps 2 --batch 2 --context 32"}
SCRIPT_FILES = ("run-on-device", "train-on-device", "measure-on-device", "gpu_memory.py", "killed.py")
PARTS = ["questions", "the driver's conformance", "the device's conformance", "kernels", "training", "measures"]
FAILED, NO_TIME = 8, 6
# A driver that never answers, and a program in it that does not end when it is asked to.
STUBBORN = """#!/bin/sh
if [ "$1" = --list ]; then echo 'G1 is it'; exit; fi
trap '' TERM
while :; do sleep 0.2; done
"""
OLD_SYSTEM = """#!/bin/sh
if [ ! -e "$(dirname "$0")/../ours" ]; then echo "$0: /lib/libc.so.6: version GLIBC_2.36 not found" >&2; exit 1; fi
echo G1 pass
"""


def run(script, folder, before=(), **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GEMINID_")}
    return subprocess.run([str(PROGRAMS / "geminid-with-double"), "--memory", "512", *before, str(script), str(folder),
                           *QUESTIONS], env={**environment, **LITTLE, **variables}, capture_output=True, text=True, check=False)


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
        for name in SCRIPT_FILES:
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
        self.assertGreater(self.read("device.json")["tests"], 0)
        self.assertEqual(self.read("device.json")["failures"], 0)
        self.assertTrue(self.read("training.json")["passed"])
        figures = {row["id"]: row for row in self.read("benchmarks.json")["figures"]}
        self.assertEqual({name: row["verdict"] for name, row in figures.items()},
                         {"B1": "not judged", "B5": "not judged", "B10": "not judged"}, figures)
        self.assertEqual(figures["B10"]["value"], 0)
        self.assertEqual(self.report(), [f"{name}: passed" for name in PARTS])

    def test_KernelsThatCannotBeHad_FailAndTheOtherPartsStillRun(self):
        done = run(SCRIPTS / "run-on-device", self.out, ["env", "GEMINID_GPU_DOUBLE_KERNELS=/nowhere"],
                   GEMINID_PROGRAMS=str(PROGRAMS))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual([line.split(": ")[0] for line in self.parts()], PARTS)
        self.assertEqual(self.parts()[:2], ["questions: passed", "the driver's conformance: passed"], self.report())
        self.assertEqual([line for line in self.parts()[3:] if line.endswith(": passed")], [])

    def test_PartThatFails_SaysWhyInTheReport(self):
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("geminid-gpu-verify", "geminid-driver-conformance", "geminid_device_test", "geminid-train"):
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

    def stub(self, path, text):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def test_ProgramThatHangs_IsEndedAndTheLaterPartsSayThatThereWasNoTime(self):
        programs = self.folder / "bin"
        self.stub(programs / "geminid-gpu-verify", STUBBORN)
        begin = time.monotonic()
        done = run(SCRIPTS / "run-on-device", self.out, GEMINID_PROGRAMS=str(programs), GEMINID_RUN_SECONDS="12")
        self.assertLess(time.monotonic() - begin, 12 + 10)
        self.assertEqual(done.returncode, NO_TIME, done.stderr)
        self.assertEqual(self.report()[0], "questions: exit status 137: ended, its time was over")
        self.assertEqual(self.parts()[1:], [f"{name}: not run: no time" for name in PARTS[1:]])

    def test_QuestionsWithKills_ComeLastInAFileOfTheirOwn(self):
        said = self.folder / "said"
        program = self.stub(self.folder / "bin/verify", f"#!/bin/sh\necho \"$@\" >>{said}\necho pass\n")
        done = run(SCRIPTS / "run-on-device", self.out, ["env"], GEMINID_GPU_VERIFY=str(program))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.report(), ["questions: passed"])
        subprocess.run([str(SCRIPTS / "run-on-device"), str(self.out), "G2", "R1", "--device", "1"], check=True, capture_output=True,
                       env=dict(os.environ, GEMINID_GPU_VERIFY=str(program)))
        self.assertEqual(self.report(), ["questions: passed", "kills: passed"])
        first, last = said.read_text().splitlines()[-2:]
        self.assertRegex(first, r"--json \S+/results.json --limit 165 --device 1 R1$")
        self.assertRegex(last, r"--json \S+/kills.json --limit \d+ --device 1 G2$")

    def test_MoreTimeThanUsual_IsMoreForEachPart(self):
        program = self.stub(self.folder / "bin/verify", "#!/bin/sh\necho \"$@\"\n")
        for seconds, limit in (("1060", 335), ("530", 165), ("300", 165)):
            done = run(SCRIPTS / "run-on-device", self.out, ["env"], GEMINID_GPU_VERIFY=str(program), GEMINID_RUN_SECONDS=seconds)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex((self.out / "results.txt").read_text(), rf"--limit {limit} ")

    def test_PythonWithTorch_ComesFirst(self):
        programs = self.folder / "bin"
        for name in ("geminid-gpu-verify", "geminid-kernel-check"):
            self.stub(programs / name, "#!/bin/sh\necho '{}'\n")
        python = self.stub(self.folder / "python", "#!/bin/sh\n[ \"$1\" = -c ] || echo \"$GEMINID_DAEMON $*\" >&2\nexit 0\n")
        done = run(SCRIPTS / "run-on-device", self.out, ["env"], GEMINID_PROGRAMS=str(programs), GEMINID_TORCH_PYTHON=str(python),
                   GEMINID_RUN_SECONDS="530")
        self.assertEqual(self.report()[0], "torch: passed")
        self.assertRegex(done.stderr, rf"{programs}/geminid {SCRIPTS}/torch-on-device {self.out} --seconds 235")

    def test_SecondCallThatGoesOn_RunsWhatHasNotPassed(self):
        said = self.folder / "said"
        program = self.stub(self.folder / "verify", f"#!/bin/sh\necho \"$@\" >>{said}\ncase $* in *G2) exit {FAILED};; esac\n")
        command = [str(SCRIPTS / "run-on-device"), str(self.out), "G2", "R1"]
        environment = dict(os.environ, GEMINID_GPU_VERIFY=str(program))
        subprocess.run(command, check=False, capture_output=True, env=environment)
        self.assertEqual(self.report(), ["questions: passed", f"kills: exit status {FAILED}"])
        said.unlink()
        subprocess.run(command, check=False, capture_output=True, env={**environment, "GEMINID_RUN_ON": "1"})
        self.assertEqual(self.report(), ["questions: passed", f"kills: exit status {FAILED}"])
        asked = [line for line in said.read_text().splitlines() if line != "--list"]
        self.assertEqual(len(asked), 1, asked)
        self.assertRegex(asked[0], "G2$")

    def test_SystemWithAnOlderCLibrary_GetsTheProgramsOwn(self):
        (self.folder / "gpu-verify").mkdir()
        shutil.copy(SCRIPTS / "run-on-device", self.folder / "gpu-verify")
        program = self.stub(self.folder / "bin/geminid-gpu-verify", OLD_SYSTEM)
        self.stub(self.folder / "own-libc", f"#!/bin/sh\ntouch {self.folder}/ours\n")
        done = run(self.folder / "gpu-verify/run-on-device", self.out, GEMINID_GPU_VERIFY=str(program))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.report(), ["questions: passed"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
