#!/usr/bin/env python3
"""write_table_test.py: the page of results contains exactly the results of a run on a GPU."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tools/gpu-verify/write-table"
PAGE = "docs/gpu-verification.md"
FILE = "docs/gpu-results.json"


def good_run(ids):
    probes = [{"id": name, "question": "is it", "verdict": "pass", "figure": f"figure of {name}", "reason": ""} for name in ids]
    return {"date": "2027-01-02T03:04:05Z", "gpu": "GPU of a test", "driver": "999.1", "quick": False, "probes": probes}


def good_products():
    checks = [{"name": "AdamW | fp32", "passed": True, "detail": "", "bytes_per_second": 9e11, "operations_per_second": 0},
              {"name": "attention", "passed": False, "detail": "1 of 2", "bytes_per_second": 0, "operations_per_second": 2e13}]
    return {"device": "GPU", "copy_bytes_per_second": 1e12, "checks": checks, "products_by": "cuBLASLt 13.1.0 (/lib/it.so)",
            "products": [{"id": f"P{i}", "name": "it", "library_flops": 98e12, "bare_loop_flops": 1e14, "own_kernel_flops": 49e11,
                          "of_bare_loop": 0.98, "judged": True, "passed": True, "detail": ""} for i in range(1, 6)]}


def good_benchmarks(**more):
    row = {"id": "B1", "what": "it", "value": 0.97, "unit": "of the loop", "target": ">= 0.95", "verdict": "yes", "note": "50 of 52"}
    return {"gpu": "GPU", "tiny": False, "figures": [row, dict(row, id="B2", value=0.5, verdict="no", note="a | b"),
                                                      dict(row, id="B8", value=None, verdict="not run", note="no time")], **more}


def good_training():
    row = {"name": "no limit", "exit_code": 0, "loss": [5.0, 4.25], "most_beside_host": 0.001, "tokens_per_second": 1234.4,
           "device_bytes_limit": 1 << 30, "h2d_bytes": 3 << 20}
    return {"model": "it", "steps": 2, "batch": 4, "dtype": "bf16", "passed": False, "wrong": ["half: not | the bits"],
            "runs": [row, {"name": "half", "exit_code": 1}]}


class WriteTable(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        self.results = self.root / "results"
        self.results.mkdir()
        (self.root / "docs").mkdir()
        shutil.copy(ROOT / PAGE, self.root / PAGE)
        listed = [line.split("|") for line in self.page().splitlines()]
        self.ids = [words[1].strip() for words in listed
                    if len(words) == 6 and words[1].strip()[:1] in "GR" and "not probed" not in words[3]]
        self.verify = good_run(self.ids)

    def page(self):
        return (self.root / PAGE).read_text()

    def row(self, name):
        return next(line for line in self.page().splitlines() if line.startswith(f"| {name} |"))

    def write(self, **more):
        for name, content in {"results": self.verify, **more}.items():
            (self.results / f"{name}.json").write_text(json.dumps(content))
        return self.run_script(str(self.results))

    def run_script(self, *arguments):
        return subprocess.run([str(SCRIPT), *arguments, "--root", str(self.root)], capture_output=True, text=True, check=False)

    def assert_refused(self, done, word):
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(word, done.stderr)
        self.assertFalse((self.root / FILE).exists())

    def test_ResultsOfAGpu_GetIntoTheirRowsAndThePageIsGood(self):
        self.verify["probes"][0].update(verdict="fail", figure="a | b", reason="too\nslow")
        done = self.write(kernels={"device": "GPU", "copy_bytes_per_second": 0, "checks": [{"passed": True}, {"passed": False}]},
                          conformance={"tests": 5, "failures": 1}, training=dict(good_training(), passed=True))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2027-01-02, GPU of a test, driver 999.1: figure of G20, pass", self.row("G20"))
        failed = self.row(self.verify["probes"][0]["id"])
        self.assertIn("a / b, **fail** (too slow)", failed)
        self.assertIn("not probed by the program", self.row("G8"))
        for name in self.ids:
            self.assertNotIn("not yet run", self.row(name))
        for words in (f"{len(self.ids) - 1} of {len(self.ids)} questions pass, 1 fail", "4 of 5 conformance tests pass",
                      "1 of 2 kernels agree", "training over placements passes"):
            self.assertIn(words, self.page())
        self.assertEqual(self.run_script("--check").returncode, 0)
        self.assertEqual(self.write().returncode, 0)  # once more, replacing the first
        self.assertEqual(self.run_script("--check").returncode, 0)

    def test_ProductsOfAGpu_GetIntoTheirRows(self):
        kernels = good_products()
        kernels["products"][1].update(of_bare_loop=0.5, passed=False, detail="too | slow")
        self.assertEqual(self.write(kernels=kernels).returncode, 0)
        self.assertIn("GPU of a test, driver 999.1: 98.0 TFLOP/s, 0.98 of a bare loop, 20.0 of our kernel, "
                      "cuBLASLt 13.1.0 (/lib/it.so), pass", self.row("P1"))
        self.assertIn("**fail** (too / slow)", self.row("P2"))
        self.assertIn("4 of 5 products keep up with a bare loop", self.page())
        self.assertEqual(self.run_script("--check").returncode, 0)

    def test_FiguresOfAGpu_StandBesideTheirPredictions(self):
        (self.root / "docs/gpu-predictions.json").write_text(json.dumps({"predictions": {
            "h200": {"B1": {"value": 0.968, "by": "a | model"}, "B2": {"value": 1, "by": "it"}},
            "h100-80gb": {"B1": {"value": 0.968, "by": "a | model"}, "B2": {"value": 0.9, "by": "it"}}}}))
        self.assertEqual(self.run_script("--check").returncode, 8)
        self.assertEqual(self.write(benchmarks=good_benchmarks()).returncode, 0)
        run = "2027-01-02, GPU of a test, driver 999.1"
        self.assertIn(f"| 0.968 (a / model) | {run}: 0.97 of the loop, reached (50 of 52) |", self.row("B1"))
        self.assertIn(f"| h200 1, h100-80gb 0.9 (it) | {run}: 0.5 of the loop, **not reached** (a / b) |", self.row("B2"))
        self.assertIn(f"| - | {run}: not run (no time) |", self.row("B8"))
        self.assertIn("| - | not yet run |", self.row("B3"))
        self.assertIn("1 of 3 figures are reached, 1 are not", self.page())
        self.assertEqual(self.run_script("--check").returncode, 0)

    def test_FiguresOfTinySizesOrNoGpu_AreRefused(self):
        self.assert_refused(self.write(benchmarks=good_benchmarks(tiny=True)), "--tiny")
        self.assert_refused(self.write(benchmarks=good_benchmarks(gpu="double (not a GPU)")), "--tiny")

    def test_KernelsAndTraining_GetTablesOfTheirOwn(self):
        self.assertEqual(self.page().count("Not yet run."), 2)
        self.assertEqual(self.write(kernels=good_products(), training=good_training()).returncode, 0)
        for line in ("| AdamW / fp32 | 900 | 0.90 | - | agrees |", "| attention | - | - | 20.00 | **1 of 2** |",
                     "| no limit | 4.25000 | 0.001 | 1234 | 1024 | 3 |", "| half | **failed** | - | - | - | - |",
                     "**half: not / the bits**"):
            self.assertIn(line, self.page().splitlines())
        self.assertEqual(self.run_script("--check").returncode, 0)

    def test_OtherQuestionsOfAFileOfTheirOwn_JoinTheFirst(self):
        last = [probe for probe in self.verify["probes"] if probe["id"] in ("G4", "R1")]
        self.verify["probes"] = [probe for probe in self.verify["probes"] if probe not in last]
        self.assertEqual(self.write().returncode, 0)
        self.assertIn("not yet run", self.row("R1"))
        self.assertIn("missing: the other questions (G4, R1), the driver's conformance, ", self.page())
        self.assertEqual(self.write(others=dict(self.verify, probes=last)).returncode, 0)
        self.assertIn("figure of R1, pass", self.row("R1"))
        self.assertNotIn("the other questions", next(line for line in self.page().splitlines() if line.startswith("**State:")))
        self.assertEqual(self.run_script("--check").returncode, 0)

    def test_MachineWithoutTheLibrary_LeavesProductsNotRun(self):
        self.assertEqual(self.write(kernels=dict(good_products(), products=[])).returncode, 0)
        self.assertIn("not yet run", self.row("P1"))

    def test_ProductsThatWereCutOrLeftOut_AreRefused(self):
        kernels = good_products()
        kernels["products"][2]["judged"] = False
        self.assert_refused(self.write(kernels=kernels), "--product-edge")
        self.assert_refused(self.write(kernels=dict(good_products(), products=good_products()["products"][:4])), "other products")

    def test_PageThatSaysAnythingElse_IsFound(self):
        self.assertEqual(self.write().returncode, 0)
        (self.root / PAGE).write_text(self.page().replace("figure of G2,", "figure of another,"))
        done = self.run_script("--check")
        self.assertEqual(done.returncode, 8)
        self.assertIn("figure of another", done.stderr)

    def test_ResultWithoutARun_IsFound(self):
        (self.root / FILE).unlink(missing_ok=True)
        self.write()
        (self.root / FILE).unlink()
        self.assertEqual(self.run_script("--check").returncode, 8)

    def test_DriverWithoutAGpu_IsRefused(self):
        before = self.page()
        self.verify["gpu"] = "Geminid driver double (not a GPU)"
        self.assert_refused(self.write(), "without a GPU")
        self.assertEqual(self.page(), before)

    def test_PartOfTheQuestionsOnWhichTheDesignDepends_IsRefused(self):
        self.verify["probes"] = [probe for probe in self.verify["probes"] if probe["id"] != "G20"]
        self.assert_refused(self.write(), "these lack G20")

    def test_QuickRun_IsRefused(self):
        self.verify["quick"] = True
        self.assert_refused(self.write(), "--quick")

    def test_QuestionThatThePageLacks_IsRefused(self):
        self.verify["probes"].append(dict(self.verify["probes"][0], id="G99"))
        self.assert_refused(self.write(), "G99")

    def test_FolderWithoutResults_IsSaid(self):
        self.assert_refused(self.run_script(str(self.results)), "run-on-device makes it")


if __name__ == "__main__":
    unittest.main()
