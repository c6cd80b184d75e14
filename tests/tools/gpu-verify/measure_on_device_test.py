#!/usr/bin/env python3
"""measure_on_device_test.py [PROGRAMS]: tests how tools/gpu-verify/measure-on-device evaluates its measurements. With PROGRAMS
it also runs the whole tool on the driver without a GPU."""

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools/gpu-verify/measure-on-device"
PROGRAMS = pathlib.Path(sys.argv.pop()).resolve() if len(sys.argv) > 1 else None
loader = importlib.machinery.SourceFileLoader("measure_on_device", str(SCRIPT))
script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(script)

MIB = 1 << 20
ROWS = {row[0]: row for row in script.FIGURES}
KERNELS = {"copy_bytes_per_second": 100.0,
           "checks": [{"name": "AdamW, fp32", "bytes_per_second": 95.0}, {"name": "AdamW, bf16", "bytes_per_second": 91.0},
                      {"name": "GELU", "bytes_per_second": 10.0}],
           "products": [{"id": "P1", "name": "it", "of_bare_loop": 0.99}, {"id": "P2", "name": "it", "of_bare_loop": 0.97}]}
TRAINING = {"model": "it", "dtype": "bf16", "wrong": [], "runs": [{"exit_code": 0}]}


class Runs:
    """Replaces geminid-train: returns reports or failures."""

    def __init__(self, *reports):
        self.reports = list(reports)
        self.flags = []

    def __call__(self, shape, *more):
        self.flags.append((dict(shape), more))
        report = self.reports.pop(0)
        if isinstance(report, Exception):
            raise report
        return report


def report(seconds, peak=0, moved=0, **more):
    return {"step_seconds": [9.0, 9.0, seconds, seconds], "device_bytes_peak": {"total": peak}, "h2d_bytes": moved, "d2h_bytes": 0,
            "host_bytes": 0, "non_finite_losses": 0, "parameters": 0, **more}


def no_room():
    error = script.Failed("does not fit")
    error.code = script.EXIT_NO_ROOM
    return error


class Figures(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.machine = script.Machine.__new__(script.Machine)
        self.machine.folder = pathlib.Path(temporary.name)
        self.machine.end = time.monotonic() + 60
        self.machine.sizes = script.FULL
        self.machine.programs = self.machine.folder
        self.write("kernels.json", KERNELS)
        self.write("training.json", TRAINING)

    def write(self, name, content):
        (self.machine.folder / name).write_text(json.dumps(content))

    def measure(self, name, judged=True):
        return script.measure(self.machine, ROWS[name], judged)

    def tickets(self, up, down, both):
        self.machine.link_rate = 1e9
        self.machine.tickets = {way: {"direction": way, "ratio": ratio, "tickets_bytes_per_second": 1e9, "plain_bytes_per_second": 1e9}
                                for way, ratio in (("up", up), ("down", down), ("both", both))}

    def test_Tickets_AreJudgedByTheWorseDirection(self):
        self.tickets(0.99, 0.94, 0.91)
        self.assertEqual((self.measure("B1")["value"], self.measure("B1")["verdict"]), (0.94, "no"))
        self.assertEqual(self.measure("B2")["verdict"], "yes")
        self.assertEqual(self.measure("B1", judged=False)["verdict"], "not judged")

    def test_KernelsAndProducts_AreJudgedByTheWorst(self):
        self.assertEqual((self.measure("B4")["value"], self.measure("B4")["verdict"]), (0.91, "yes"))
        self.assertEqual((self.measure("B5")["value"], self.measure("B5")["verdict"]), (0.97, "yes"))
        self.write("kernels.json", dict(KERNELS, products=[{"id": "P1", "name": "it", "of_bare_loop": 0.94}]))
        self.assertEqual(self.measure("B5")["verdict"], "no")
        self.write("kernels.json", dict(KERNELS, products=[]))
        self.assertEqual(self.measure("B5")["verdict"], "not applicable")

    def test_FileThatIsNotThere_IsNotRun(self):
        (self.machine.folder / "kernels.json").unlink()
        row = self.measure("B4")
        self.assertEqual(row["verdict"], "not run")
        self.assertIn("kernels.json", row["note"])

    def test_OtherBitsOfAPlacement_AreCounted(self):
        self.assertEqual((self.measure("B10")["value"], self.measure("B10")["verdict"]), (0, "yes"))
        self.write("training.json", dict(TRAINING, wrong=["half: not the bits of no limit", "losses differ"]))
        self.assertEqual((self.measure("B10")["value"], self.measure("B10")["verdict"]), (1, "no"))
        self.write("training.json", dict(TRAINING, runs=[{"exit_code": 1}]))
        self.assertEqual(self.measure("B10")["verdict"], "not run")

    def test_HalfTheMemory_IsJudgedWhereComputeExceedsTransfers(self):
        self.tickets(1, 1, 1)
        for seconds, moved, verdict in ((1.04, 1e9, "yes"), (1.06, 1e9, "no"), (1.06, 4e9, "not applicable")):
            self.machine.train = Runs(report(1.0, peak=9 * MIB), report(seconds, moved=moved))
            row = self.measure("B3")
            self.assertEqual((row["verdict"], row["value"]), (verdict, seconds), row)
            self.assertEqual(self.machine.train.flags[1][1], ("--device-memory", 4 * MIB))

    def test_ModelThatDoesNotFit_IsFollowedByASmallerOne(self):
        asked = []
        shape = {"layers": 1, "hidden": 2, "heads": 1, "vocabulary": 3}

        def plan(_, parameters, __):
            asked.append(parameters)
            return dict(shape, parameters=int(parameters))
        self.addCleanup(setattr, script, "largest_shape", script.largest_shape)
        self.addCleanup(setattr, script, "free_host_bytes", script.free_host_bytes)
        script.largest_shape = plan
        for free, verdict in ((200 << 30, "no"), (50 << 30, "not applicable")):
            script.free_host_bytes = lambda free=free: free
            self.machine.train = Runs(no_room(), report(1.0, parameters=14_400_000_000))
            row = self.measure("B8")
            self.assertEqual((row["verdict"], row["value"]), (verdict, 14_400_000_000), row)
            self.assertIn("did not fit: 1.82e+10", row["note"])
        self.assertEqual(asked[:2], [18.2e9, 14.56e9])
        self.machine.train = Runs(report(1.0, parameters=18_000_000_000))
        self.assertEqual(self.measure("B8")["verdict"], "yes")

    def test_RunThatFailsForAnotherReason_IsNotTriedSmaller(self):
        self.addCleanup(setattr, script, "largest_shape", script.largest_shape)
        script.largest_shape = lambda *_: {"layers": 1, "hidden": 2, "heads": 1, "vocabulary": 3, "parameters": 5}
        self.machine.train = Runs(script.Failed("no time"))
        row = self.measure("B8")
        self.assertEqual((row["verdict"], row["value"]), ("not run", None))
        self.assertIn("no time", row["note"])

    def test_LossThatIsNotFinite_IsNoTraining(self):
        self.machine.train = Runs(report(1.0), report(1.0, non_finite_losses=1))
        self.assertEqual([self.measure("B7")["verdict"] for _ in range(2)], ["yes", "no"])

    def test_FigureWithoutTimeLeft_IsNotRun(self):
        self.machine.end = time.monotonic()
        self.assertEqual((self.measure("B4")["verdict"], self.measure("B4")["note"]), ("not run", "no time"))

    def test_ProgramThatHangs_EndsWithTheTime(self):
        self.machine.end = time.monotonic() + 1
        self.machine.environment = None
        with self.assertRaises(script.Failed) as failed:
            self.machine.call("/bin/sleep", 600)
        self.assertIn("no time", str(failed.exception))

    def test_EarlierFigures_AreThoseOfThisGpuAndSizeThatWereHad(self):
        rows = [{"id": "B1", "verdict": "no"}, {"id": "B2", "verdict": "not run"}]
        self.write("benchmarks.json", {"gpu": "it", "tiny": False, "figures": rows})
        self.assertEqual(script.earlier_rows(self.machine.folder, "it", False), rows[:1])
        self.assertEqual(script.earlier_rows(self.machine.folder, "another", False), [])
        self.assertEqual(script.earlier_rows(self.machine.folder, "it", True), [])
        self.assertEqual(script.earlier_rows(self.machine.folder / "nowhere", "it", False), [])

    def test_TrainingThatWasEnded_HasNoPlacementsToCompare(self):
        self.write("training.json", {"runs": [{"exit_code": 0}], "wrong": ["not all runs have ended"]})
        self.assertIn("ended before its last run", self.measure("B10")["note"])

    def test_ExitStatus_IsOfTheWorst(self):
        for verdicts, code in ((["yes", "not judged", "not applicable"], 0), (["yes", "no"], 8), (["no", "not run"], 1)):
            self.assertEqual(script.exit_status([{"verdict": verdict} for verdict in verdicts]), code)

    def test_Gpu_HasThePredictionsOfItsRow(self):
        self.assertEqual(script.kind_of("NVIDIA H200"), "h200")
        self.assertEqual(script.kind_of("NVIDIA H100 80GB HBM3"), "h100-80gb")
        self.assertIsNone(script.kind_of("NVIDIA GH200 480GB"))
        self.assertIsNone(script.kind_of("Geminid driver double (not a GPU)"))


class Kills(unittest.TestCase):
    """Kills of daemon and agents, with a fake GPU whose answers the test chooses."""

    def left(self, *used):
        values = list(used)
        gpu = types.SimpleNamespace(used_bytes=lambda: values.pop(0), await_used=lambda most, _: values.pop(0))
        process = types.SimpleNamespace(pid=-1)
        service = types.SimpleNamespace(start_daemon=lambda: None, start_run=lambda _: None, daemon=process, rank=lambda: -1,
                                        agent=lambda: -1)

        class Service:
            def __init__(self, *_):
                pass

            def __enter__(self):
                return service

            def __exit__(self, *_):
                pass
        for name, value in (("Service", Service), ("os", types.SimpleNamespace(kill=lambda *_: None))):
            self.addCleanup(setattr, script.killed, name, getattr(script.killed, name))
            setattr(script.killed, name, value)
        return script.killed.left_after(types.SimpleNamespace(gpu=gpu), 8 * MIB, "rank" if len(used) == 4 else "agent")

    def test_MemoryThatStays_IsCounted(self):
        self.assertEqual(self.left(1 * MIB, 2 * MIB, 10 * MIB, 2 * MIB), 0)  # back to the memory of the daemon
        self.assertEqual(self.left(1 * MIB, 2 * MIB, 10 * MIB, 5 * MIB), 3 * MIB)

    def test_RunWhoseMemoryIsNotSeen_SaysNothingOfItsReturn(self):
        with self.assertRaises(script.killed.Failed):
            self.left(0, 0, 0, 0)


@unittest.skipIf(PROGRAMS is None, "no programs")
class OnTheDriverWithoutAGpu(unittest.TestCase):
    def test_EveryFigure_IsHadAndNoneIsJudged(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "kernels.json").write_text(json.dumps(KERNELS))
            (folder / "training.json").write_text(json.dumps(TRAINING))
            done = subprocess.run([str(PROGRAMS / "geminid-with-double"), "--memory", "512", str(SCRIPT), str(PROGRAMS), name,
                                   "--tiny", "--seconds", "1200"], capture_output=True, text=True, check=False)
            rows = json.loads((folder / "benchmarks.json").read_text())["figures"]
        self.assertEqual([row["id"] for row in rows], list(ROWS))
        # PyTorch is not installed, or sees no GPU.
        wanted = {name: "not applicable" if name == "B6" else "not judged" for name in ROWS}
        self.assertEqual({row["id"]: row["verdict"] for row in rows}, wanted, done.stdout + done.stderr)
        self.assertEqual(done.returncode, 0)
        values = {row["id"]: row["value"] for row in rows}
        self.assertEqual((values["B9"], values["B10"], values["B11"]), (0, 0, 0))
        self.assertGreater(values["B8"], 1e6)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
