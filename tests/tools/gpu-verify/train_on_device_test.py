#!/usr/bin/env python3
"""train_on_device_test.py: tests how tools/gpu-verify/train-on-device evaluates runs."""

import copy
import importlib.machinery
import importlib.util
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools" / "gpu-verify" / "train-on-device"
loader = importlib.machinery.SourceFileLoader("train_on_device", str(SCRIPT))
script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(script)

TOLERANCE = 0.01


def run(name, losses=(5.0, 4.0), on="a GPU", weights="00"):
    return {"name": name, "exit_code": 0, "computes_on": on, "products_by": "cuBLASLt",
            "loss": list(losses),
            "loss_hex": [loss.hex() for loss in losses], "weights_sha256": weights,
            "tokens_per_second": 1, "device_bytes_limit": 4 << 20, "device_bytes_peak": 3 << 20,
            "h2d_bytes": 0}


def good_runs():
    return [run("no limit"), run("half the memory"), run("two ranks", weights="11"),
            run("two ranks, half the memory", weights="11"), run("cut layers", weights="33"),
            run("cut layers, half the memory", weights="33"), run("host", (5.001, 4.001), "host")]


class Judge(unittest.TestCase):
    def wrong(self, change):
        rows = copy.deepcopy(good_runs())
        change(rows)
        return script.judge(rows, TOLERANCE)

    def test_RunsOfOneKindWithTheSameBits_Pass(self):
        self.assertEqual(self.wrong(lambda rows: None), [])

    def test_OtherWeights_AreSaidOfTheRunThatHasThem(self):
        wrong = self.wrong(lambda rows: rows[1].update(weights_sha256="22"))
        self.assertEqual(wrong, ["half the memory: not the bits of no limit"])

    def test_OneBitOfALossOfSeveralRanks_IsFound(self):
        wrong = self.wrong(lambda rows: rows[3].update(loss_hex=["0x1p+0", "0x1p+1"]))
        self.assertEqual(wrong, ["two ranks, half the memory: not the bits of two ranks"])

    def test_OtherWeightsOfCutLayers_AreFound(self):
        wrong = self.wrong(lambda rows: rows[5].update(weights_sha256="44"))
        self.assertEqual(wrong, ["cut layers, half the memory: not the bits of cut layers"])

    def test_LossesFarFromTheHosts_AreFound(self):
        wrong = self.wrong(lambda rows: rows[-1].update(loss=[5.0, 4.5]))
        self.assertEqual(len(wrong), 6)
        self.assertIn("no limit: losses differ from the host's by 0.5", wrong[0])

    def test_RunThatComputedElsewhere_IsFound(self):
        wrong = self.wrong(lambda rows: rows[0].update(computes_on="host"))
        self.assertEqual(wrong, ["no limit: computed on host"])

    def test_RunThatFails_IsSaidWithItsWords(self):
        wrong = self.wrong(lambda rows: rows[2].update(exit_code=7, error="no memory\n"))
        self.assertEqual(wrong, ["two ranks: exit code 7: no memory"])

    def test_Table_ShowsEveryRunAndWhatIsWrong(self):
        rows = good_runs()
        text = script.table(rows, script.judge(rows, TOLERANCE))
        for row in rows:
            self.assertIn(row["name"], text)
        self.assertIn("same bits", text)
        self.assertIn("it is bad", script.table(rows, ["it is bad"]))

    def test_HalfOfTheMemory_IsWholePiecesAndNeverNothing(self):
        self.assertEqual(script.half_of({"device_bytes_peak": 9 << 20}), 4 << 20)
        self.assertEqual(script.half_of({"device_bytes_peak": 1 << 20}), 2 << 20)


if __name__ == "__main__":
    unittest.main()
