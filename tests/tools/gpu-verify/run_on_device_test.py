#!/usr/bin/env python3
"""run_on_device_test.py PROGRAMS: a whole run of tools/gpu-verify/run-on-device, on the driver without a GPU."""

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
# The shortest form of each part, with ten times the usual time limit for busy CPUs.
LITTLE = {"GEMINID_DRY_RUN": "1", "GEMINID_RUN_SECONDS": "5300", "GEMINID_TORCH_PYTHON": "/nowhere/python"}
SCRIPT_FILES = ("run-on-device", "train-on-device", "measure-on-device", "gpu_memory.py", "killed.py", "first_cause.py",
                "answers.py")
PARTS = ["the driver's conformance", "the device's conformance", "questions", "kernels", "training", "measures", "other questions"]
CONTEXT_LINES = 50
FAILED, NO_TIME = 8, 6
# A driver that never answers, and in it a program that ignores requests to end.
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
        """Returns the report without the error texts."""
        return [line for line in self.report() if not line.startswith(" ")]

    def test_AsInTheTarball_RunsEveryPartAndLeavesWhatEachSaid(self):
        (self.folder / "bin").symlink_to(PROGRAMS)
        (self.folder / "gpu-verify").mkdir()
        for name in SCRIPT_FILES:
            shutil.copy(SCRIPTS / name, self.folder / "gpu-verify")
        done = run(self.folder / "gpu-verify/run-on-device", self.out)
        self.assertEqual(done.returncode, 0, "\n".join([*self.report(), done.stdout, done.stderr]))
        results = self.read("results.json")
        self.assertEqual([probe["id"] for probe in results["probes"]], ["G1"])
        self.assertEqual([probe["id"] for probe in self.read("others.json")["probes"]], ["G4", "G7"])
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
        self.assertEqual([line for line in self.parts() if line.endswith(": passed")],
                         ["the driver's conformance: passed", "questions: passed", "other questions: passed"], self.report())

    def test_PartThatFails_SaysWhyInTheReport(self):
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("geminid-gpu-verify", "geminid-driver-conformance", "geminid_device_test", "geminid-train"):
            (programs / name).symlink_to(PROGRAMS / name)
        broken = programs / "geminid-kernel-check"
        broken.write_text("#!/bin/sh\necho '{}'\nseq 100 >&2\necho 'an error: no kernel today' >&2\nseq 100 >&2\n"
                          f"echo 'error of what followed' >&2\nexit {FAILED}\n")
        broken.chmod(0o755)
        (programs / "geminid").symlink_to("/bin/false")
        done = run(SCRIPTS / "run-on-device", self.out, GEMINID_PROGRAMS=str(programs))
        report = self.report()
        self.assertEqual(done.returncode, 1, report)
        kernels = report.index(f"kernels: exit status {FAILED}")
        said = report[kernels + 1:report.index("training: exit status 1")]
        self.assertEqual(said[0], "  first cause, line 101: an error: no kernel today")
        before, after = [f"  {n}" for n in range(91, 101)], [f"  {n}" for n in range(1, 40)]
        self.assertEqual(said[1:], [*before, "  an error: no kernel today", *after])
        self.assertEqual(len(said), 1 + CONTEXT_LINES)
        self.assertEqual(self.read("kernels.json"), {})
        self.assertIn("daemon", "\n".join(report[report.index("training: exit status 1"):]))

    def test_QuestionThatFails_IsTheExitStatus(self):
        wrong = self.folder / "wrong"
        wrong.write_text(f"#!/bin/sh\n[ $1 = --list ] || echo 'G1 fail'\nexit {FAILED}\n")
        wrong.chmod(0o755)
        done = run(SCRIPTS / "run-on-device", self.out, GEMINID_GPU_VERIFY=str(wrong))
        self.assertEqual(done.returncode, FAILED)
        answered = [f"exit status {FAILED}", "  first cause, line 1: G1 fail", "  G1 fail"]
        self.assertEqual(self.report(), [f"questions: {answered[0]}", *answered[1:], f"other questions: {answered[0]}", *answered[1:]])
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
        done = run(SCRIPTS / "run-on-device", self.out, GEMINID_PROGRAMS=str(programs), GEMINID_RUN_SECONDS="12",
                   GEMINID_DRY_RUN="0")
        self.assertLess(time.monotonic() - begin, 12 + 10)
        self.assertEqual(done.returncode, NO_TIME, done.stderr)
        report = self.parts()
        self.assertIn("questions: exit status 137: ended, its time was over", report)
        self.assertEqual(report[report.index("questions: exit status 137: ended, its time was over") + 1:],
                         [f"{name}: not run: no time" for name in PARTS[3:]])

    def test_QuestionsOnWhichTheDesignDepends_ComeFirstInAFileOfTheirOwn(self):
        said = self.folder / "said"
        program = self.stub(self.folder / "bin/verify", f"#!/bin/sh\necho \"$@\" >>{said}\necho pass\n")
        subprocess.run([str(SCRIPTS / "run-on-device"), str(self.out), "R1", "G2", "--device", "1"], check=True,
                       capture_output=True, env=dict(os.environ, GEMINID_GPU_VERIFY=str(program)))
        self.assertEqual(self.report(), ["questions: passed", "other questions: passed"])
        first, last = said.read_text().splitlines()[-2:]
        self.assertRegex(first, r"--json \S+/results.json --limit 145 --device 1 G2$")
        self.assertRegex(last, r"--json \S+/others.json --limit \d+ --device 1 R1$")

    def test_MoreTimeThanUsual_IsMoreForEachPart(self):
        program = self.stub(self.folder / "bin/verify", "#!/bin/sh\necho \"$@\"\n")
        for seconds, limit in (("1060", 295), ("530", 145), ("300", 145)):
            done = run(SCRIPTS / "run-on-device", self.out, ["env"], GEMINID_GPU_VERIFY=str(program), GEMINID_RUN_SECONDS=seconds,
                       GEMINID_DRY_RUN="0")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex((self.out / "results.txt").read_text(), rf"--limit {limit} ")

    def test_DryRun_TakesAFifthOfTheTime(self):
        program = self.stub(self.folder / "bin/verify", "#!/bin/sh\necho \"$@\"\n")
        environment = {**os.environ, "GEMINID_DRY_RUN": "1", "GEMINID_GPU_VERIFY": str(program), "GEMINID_TORCH_PYTHON": "/nowhere"}
        subprocess.run([str(SCRIPTS / "run-on-device"), str(self.out), "G1"], check=True, capture_output=True, env=environment)
        self.assertRegex((self.out / "results.txt").read_text(), "--limit 10 ")  # 15 seconds minus the time to end

    def test_PythonWithTorch_ComesFirst(self):
        programs = self.folder / "bin"
        for name in ("geminid-gpu-verify", "geminid-kernel-check"):
            self.stub(programs / name, "#!/bin/sh\necho '{}'\n")
        python = self.stub(self.folder / "python", "#!/bin/sh\n[ \"$1\" = -c ] || echo \"$GEMINID_DAEMON $*\" >&2\nexit 0\n")
        done = run(SCRIPTS / "run-on-device", self.out, ["env"], GEMINID_PROGRAMS=str(programs), GEMINID_TORCH_PYTHON=str(python),
                   GEMINID_RUN_SECONDS="530", GEMINID_DRY_RUN="0")
        self.assertEqual(self.report()[0], "torch: passed")
        self.assertRegex(done.stderr, rf"{programs}/geminid {SCRIPTS}/torch-on-device {self.out} --seconds 235")

    def test_BundleWithThePackage_LeavesItToFindItsLibraryAndDaemon(self):
        (self.folder / "gpu-verify").mkdir()
        for name in SCRIPT_FILES:
            shutil.copy(SCRIPTS / name, self.folder / "gpu-verify")
        (self.folder / "python/geminid").mkdir(parents=True)
        for name in ("geminid-gpu-verify", "geminid-kernel-check"):
            self.stub(self.folder / "bin" / name, "#!/bin/sh\necho '{}'\n")
        python = self.stub(self.folder / "interpreter", "#!/bin/sh\n[ \"$1\" = -c ] || echo \"$PYTHONPATH,$GEMINID_DAEMON,\" >&2\n")
        done = run(self.folder / "gpu-verify/run-on-device", self.out, ["env"], GEMINID_TORCH_PYTHON=str(python),
                   PYTHONPATH="/others")
        self.assertRegex(done.stderr, rf"{self.folder}/gpu-verify/../python:/others,,")

    def call_with_programs(self, programs, **variables):
        environment = {**os.environ, "GEMINID_TORCH_PYTHON": "/nowhere", "GEMINID_PROGRAMS": str(programs), **variables}
        return subprocess.run([str(SCRIPTS / "run-on-device"), str(self.out)], check=False, capture_output=True, text=True,
                              env=environment)

    def stub_programs(self, said, kernels):
        """Makes programs of all parts up to the kernels. Each prints that it was called."""
        programs = self.folder / "bin"
        for name in ("geminid-driver-conformance", "geminid_device_test"):
            self.stub(programs / name, f"#!/bin/sh\necho {name} >>{said}\n")
        self.stub(programs / "geminid-gpu-verify", "#!/bin/sh\n[ $1 = --list ] || exit 0\n")
        self.stub(programs / "geminid-kernel-check", f"#!/bin/sh\necho geminid-kernel-check >>{said}\n{kernels}\n")
        return programs

    def test_SecondCallThatGoesOn_RunsWhatHasNotPassed(self):
        said = self.folder / "said"
        programs = self.stub_programs(said, f"echo 'an error of the first call' >&2; exit {FAILED}")
        self.call_with_programs(programs)
        self.assertIn(f"kernels: exit status {FAILED}", self.report())
        said.unlink()
        self.stub_programs(said, "echo '{}'")
        self.call_with_programs(programs, GEMINID_RUN_ON="1")
        self.assertEqual(said.read_text().split(), ["geminid-kernel-check"])
        self.assertEqual(self.parts()[:2], ["the driver's conformance: passed before", "the device's conformance: passed before"])
        self.assertIn("kernels: passed", self.report())
        said.unlink()
        self.call_with_programs(programs, GEMINID_RUN_ON="1")
        self.assertFalse(said.exists())

    def test_CallAfterOneThatWasKilled_RunsWhatHadNotEnded(self):
        said = self.folder / "said"
        # The program timeout runs between the script and its part.
        programs = self.stub_programs(said, "kill -9 $(ps -o ppid= -p $PPID)")
        self.assertEqual(self.call_with_programs(programs).returncode, -9)
        said.unlink()
        self.stub_programs(said, "echo '{}'")
        self.call_with_programs(programs, GEMINID_RUN_ON="1")
        self.assertEqual(said.read_text().split(), ["geminid-kernel-check"])
        self.assertIn("kernels: passed", self.report())

    def test_QuestionsThatAreAnswered_AreNotAskedAgain(self):
        said = self.folder / "said"
        probes = [{"id": name, "verdict": "fail", "reason": reason, "figure": ""}
                  for name, reason in (("G1", "too slow"), ("G2", "not run: the time limit was reached"))]
        answers = json.dumps({"gpu": "it", "probes": probes})
        program = self.stub(self.folder / "verify", f"#!/bin/sh\n[ $1 = --list ] && {{ echo 'G1 a'; echo 'G2 b'; exit; }}\n"
                            f"echo \"$@\" >>{said}\necho '{answers}' >$2\nexit {FAILED}\n")
        environment = dict(os.environ, GEMINID_GPU_VERIFY=str(program))
        command = [str(SCRIPTS / "run-on-device"), str(self.out)]
        subprocess.run(command, check=False, capture_output=True, env=environment)
        self.assertRegex(said.read_text(), "G1 G2$")
        second = json.dumps({"gpu": "it", "probes": [dict(probes[1], verdict="pass", reason="")]})
        self.stub(self.folder / "verify", program.read_text().replace(answers, second).replace(f"exit {FAILED}", "exit 0"))
        said.unlink()
        subprocess.run(command, check=True, capture_output=True, env={**environment, "GEMINID_RUN_ON": "1"})
        self.assertRegex(said.read_text(), r"--limit \d+ G2$")
        verdicts = {probe["id"]: probe["verdict"] for probe in self.read("results.json")["probes"]}
        self.assertEqual(verdicts, {"G1": "fail", "G2": "pass"})
        said.unlink()
        subprocess.run(command, check=True, capture_output=True, env={**environment, "GEMINID_RUN_ON": "1"})
        self.assertFalse(said.exists())

    def test_SystemWithAnOlderCLibrary_GetsTheProgramsOwn(self):
        (self.folder / "gpu-verify").mkdir()
        shutil.copy(SCRIPTS / "run-on-device", self.folder / "gpu-verify")
        program = self.stub(self.folder / "bin/geminid-gpu-verify", OLD_SYSTEM)
        self.stub(self.folder / "own-libc", f"#!/bin/sh\ntouch {self.folder}/ours\n")
        done = run(self.folder / "gpu-verify/run-on-device", self.out, GEMINID_GPU_VERIFY=str(program))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.report(), ["questions: passed", "other questions: passed"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
