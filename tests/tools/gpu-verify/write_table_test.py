#!/usr/bin/env python3
"""write_table_test.py: the page of results is what a run on a GPU said, and nothing else gets into it."""

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
    return {"device": "GPU", "checks": [], "products_by": "cuBLASLt 13.1.0 (/lib/it.so)",
            "products": [{"id": f"P{i}", "name": "it", "library_flops": 98e12, "bare_loop_flops": 1e14, "own_kernel_flops": 49e11,
                          "of_bare_loop": 0.98, "judged": True, "passed": True, "detail": ""} for i in range(1, 6)]}


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
        done = self.write(kernels={"device": "GPU", "checks": [{"passed": True}, {"passed": False}]},
                          conformance={"tests": 5, "failures": 1}, training={"passed": True})
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
        self.assertEqual(self.write().returncode, 0)  # once more, over the first
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

    def test_PartOfTheQuestions_IsRefused(self):
        del self.verify["probes"][3]
        self.assert_refused(self.write(), self.ids[3])

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
