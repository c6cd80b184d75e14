#!/usr/bin/env python3
"""torch_on_device_test.py: tests the list of tools/gpu-verify/torch-on-device without torch, and code that scripts share."""

import argparse
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "tools" / "gpu-verify"
sys.path.insert(0, str(SCRIPTS))
loader = importlib.machinery.SourceFileLoader("torch_on_device", str(SCRIPTS / "torch-on-device"))
script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(script)

import answers  # noqa: E402
import first_cause  # noqa: E402
import torch_items  # noqa: E402

NAMES = [item.name for item in torch_items.ITEMS]
FIRST, SECOND, THIRD = NAMES[:3]


def row(name, losses=(5.0, 4.0), passed=True, **more):
    return {"name": name, "passed": passed, "seconds": 1.0, "losses": list(losses), "losses_hex": [loss.hex() for loss in losses],
            "deterministic": True, "step_seconds": 1.0, "tokens_per_second": 1.0, "peak_device_bytes": 0, **more}


class List(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.ran = []
        self.addCleanup(setattr, script, "run_item", script.run_item)
        script.run_item = self.run_item
        self.outcomes = {}

    def run_item(self, options, item, seconds):
        self.ran.append(item.name)
        outcome = self.outcomes.get(item.name, True)
        if outcome is KeyboardInterrupt:
            raise outcome
        return {"name": item.name, "passed": outcome, "seconds": 1.0}

    def call(self, only=(FIRST, SECOND, THIRD), seconds=1000):
        self.ran.clear()
        return script.run_list(argparse.Namespace(folder=self.folder, device="cpu", tiny=True, only=",".join(only), seconds=seconds,
                                                  again=False))

    def rows(self):
        return {one["name"]: one for one in json.loads((self.folder / "torch.json").read_text())["items"]}

    def test_CallAfterOneThatWasKilled_RunsWhatHadNotEnded(self):
        self.outcomes[SECOND] = KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            self.call()
        self.assertTrue(self.rows()[FIRST]["passed"])
        self.outcomes.clear()
        self.assertEqual(self.call(), 0)
        self.assertEqual(self.ran, [SECOND, THIRD])
        self.assertEqual(list(self.rows()), [FIRST, SECOND, THIRD])

    def test_SecondCall_RunsWhatHasNotRunBeforeWhatHasFailed(self):
        self.outcomes[FIRST] = False
        self.assertEqual(self.call(only=(FIRST, SECOND)), script.EXIT_FAILED)
        self.assertEqual(self.call(), script.EXIT_FAILED)
        self.assertEqual(self.ran, [THIRD, FIRST])

    def test_CallOfOneItem_LeavesTheOthersRows(self):
        self.call()
        self.outcomes[THIRD] = False
        self.assertEqual(self.call(only=(NAMES[3],)), 0)
        self.assertEqual(list(self.rows()), NAMES[:4])

    def test_ListWithoutTime_SaysWhatHasNotRun(self):
        self.assertEqual(self.call(seconds=0), script.EXIT_NO_TIME)
        self.assertEqual([script.result_of(one) for one in self.rows().values()], ["not run"] * 3)

    def test_UnknownItem_IsRefusedWithTheNames(self):
        with self.assertRaisesRegex(SystemExit, f"no item it; there are: {FIRST}, "):
            self.call(only=("it",))


class Compare(unittest.TestCase):
    def compared(self, *rows):
        script.compare(rows)
        return [script.result_of(one) for one in rows]

    def test_LossFarFromPlainTorchs_IsFound(self):
        rows = row("m/plain"), row("m/geminid-6GiB", (5.0, 4.1)), row("m/fsdp2", (5.0, 4.1)), row("other/geminid-6GiB", (9.0, 8.0))
        self.assertEqual(self.compared(*rows), ["passed", "DIFFERENT", "passed", "passed"])

    def test_LossThatIsNoNumber_IsFound(self):
        self.assertEqual(self.compared(row("m/plain"), row("m/geminid-6GiB", (5.0, float("nan")))), ["passed", "DIFFERENT"])

    def test_OneBitUnderAnotherLimit_IsFoundWhereTorchIsDeterministic(self):
        rows = row("m/geminid-4GiB"), row("m/geminid-6GiB", (5.0, 4.000000000000001))
        self.assertEqual(self.compared(*rows), ["passed", "DIFFERENT"])
        self.assertFalse(rows[1]["same_bits"])
        other = row("m/geminid-6GiB", (5.0, 4.000000000000001), deterministic=False)
        self.assertEqual(self.compared(row("m/geminid-4GiB"), other), ["passed", "passed"])


class Items(unittest.TestCase):
    def test_EachItem_HasAModelAndALimitAndItsWayToTrain(self):
        for item in torch_items.ITEMS:
            self.assertGreater(item.seconds, script.LEAST_SECONDS)
            self.assertIn(item.model, torch_items.TOLERANCE if item.by == "scenarios" else torch_items.MODELS)
            self.assertTrue(item.by == "scenarios" or item.by in torch_items.BY)
            self.assertEqual(item.limit_gib > item.engine_gib > 0, item.by == "geminid", item)
        self.assertEqual(len(set(NAMES)), len(NAMES))

    def test_Pages_HaveTheTokensOfTheLongestStep(self):
        tokens = torch_items.tokens_of(torch_items.text_files(), 1 << 20)
        longest = max(model.sequence * model.batch for model in torch_items.MODELS.values())
        self.assertGreater(len(tokens), longest)
        self.assertGreater(len(set(tokens)), 1000)

    def test_Tokens_AreWordsAndSignsInTheOrderOfTheirFirstUse(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "a.md"
            file.write_text("one two, one\nthree.")
            self.assertEqual(torch_items.tokens_of([file], 100), [0, 1, 2, 0, 3, 4])
            self.assertEqual(torch_items.tokens_of([file], 3), [0, 1, 2, 0, 0, 1])


class FirstCause(unittest.TestCase):
    def test_FirstError_IsShownWithFiftyLinesAndNotTheLast(self):
        lines = [f"line {n}" for n in range(200)]
        lines[60], lines[190] = "ValueError: the first", "error: the last"
        said = first_cause.words("\n".join(lines)).splitlines()
        self.assertEqual(said[0], "first cause, line 61: ValueError: the first")
        self.assertEqual(said[1:], lines[50:100])

    def test_ErrorNearTheEnd_HasTheLinesBeforeIt(self):
        lines = [f"line {n}" for n in range(200)] + ["Traceback (most recent call last):"]
        self.assertEqual(first_cause.find("\n".join(lines)), (201, lines[-50:]))

    def test_OutputWithoutAnError_IsShownFromItsEnd(self):
        lines = [f"line {n}" for n in range(200)]
        self.assertEqual(first_cause.words("\n".join(lines)).splitlines(), lines[-50:])

    def test_Program_ReadsItsStandardInput(self):
        done = subprocess.run([SCRIPTS / "first_cause.py"], input="x\nterminate called\n", capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "first cause, line 2: terminate called\nx\nterminate called\n")


class Answers(unittest.TestCase):
    def test_NewAnswers_TakeThePlaceOfOldOnesAndNoTimeDoesNot(self):
        with tempfile.TemporaryDirectory() as folder:
            old, new = pathlib.Path(folder) / "old.json", pathlib.Path(folder) / "new.json"

            def probe(name, verdict, reason=""):
                return {"id": name, "verdict": verdict, "reason": reason}

            no_time = "not run: the time limit was reached"
            old.write_text(json.dumps({"gpu": "it", "probes": [probe("G1", "pass"), probe("G2", "fail", no_time), probe("G3", "fail")]}))
            new.write_text(json.dumps({"gpu": "it", "probes": [probe("G1", "fail", no_time), probe("G2", "pass"), probe("G3", "pass")]}))
            answers.merge(old, new)
            said = json.loads(old.read_text())
            self.assertEqual({one["id"]: one["verdict"] for one in said["probes"]}, {"G1": "pass", "G2": "pass", "G3": "pass"})
            self.assertFalse(new.exists())

    def test_FileThatWasCutOff_AnswersNothing(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write('{"probes": [{"id"')
            file.flush()
            self.assertEqual(answers.answered(answers.read(pathlib.Path(file.name))), set())


if __name__ == "__main__":
    unittest.main()
