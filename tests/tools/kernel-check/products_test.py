#!/usr/bin/env python3
"""products_test.py PROGRAMS: tests geminid-kernel-check's timed products on the driver without a GPU."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
UNHEALTHY = 8


def check(*arguments, before=(), only="cuBLASLt"):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GEMINID_")}
    return subprocess.run([str(PROGRAMS / "geminid-with-double"), "--memory", "256", *before,
                           str(PROGRAMS / "geminid-kernel-check"), "--json", "--only", only, *arguments],
                          env=environment, capture_output=True, text=True, check=False)


class Products(unittest.TestCase):
    def test_SmallProducts_AreRightAndRatedButNotJudged(self):
        done = check("--no-timing", "--product-edge", "40")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = json.loads(done.stdout)
        self.assertIn("double", said["products_by"])
        self.assertEqual([product["id"] for product in said["products"]], ["P1", "P2", "P3", "P4", "P5"])
        for product in said["products"]:
            self.assertEqual((product["passed"], product["judged"], product["detail"]), (True, False, ""), product)
            self.assertIn("40 x 30 x 20", product["name"])
            for rate in ("library_flops", "bare_loop_flops", "own_kernel_flops", "of_bare_loop"):
                self.assertGreater(product[rate], 0, product)

    def test_NoTiming_LeavesThemOut(self):
        said = json.loads(check("--no-timing").stdout)
        self.assertEqual((said["products"], said["products_by"]), ([], ""))

    def test_MachineWithoutTheLibrary_SaysSoAndFailsNothing(self):
        done = check("--no-timing", "--product-edge", "8", before=["env", "GEMINID_LIBCUBLASLT=none"])
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said["products"], [])
        self.assertIn("GEMINID_LIBCUBLASLT", said["products_by"])

    def test_DriverWithoutOurKernels_FailsThem(self):
        done = check("--no-timing", "--product-edge", "8", before=["env", "GEMINID_GPU_DOUBLE_KERNELS="])
        self.assertEqual(done.returncode, UNHEALTHY, done.stdout)
        for product in json.loads(done.stdout)["products"]:
            self.assertFalse(product["passed"])
            self.assertIn("our kernel was refused", product["detail"])

    def test_SmallAttention_IsTestedAndTimedBesideOurs(self):
        done = check("--no-timing", "--product-edge", "40", only="attention by")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = json.loads(done.stdout)
        self.assertIn("cuDNN 9.19.0 (", said["attention_by"])
        self.assertEqual(len(said["attention"]), 2)
        for attention in said["attention"]:
            self.assertEqual((attention["passed"], attention["taken"], attention["detail"]), (True, True, ""), attention)
            self.assertGreater(attention["library_seconds"], 0, attention)
            self.assertGreater(attention["own_seconds"], 0, attention)
            for tensor in ("out", "dq", "dk", "dv"):
                self.assertGreater(attention["distances"][tensor], 0, attention)
                self.assertLess(attention["distances"][tensor], 1 / 64, attention)

    def test_MachineWithoutCudnn_SaysSoAndFailsNothing(self):
        done = check("--no-timing", "--product-edge", "8", before=["env", "GEMINID_LIBCUDNN=none"], only="attention by")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said["attention"], [])
        self.assertIn("GEMINID_LIBCUDNN", said["attention_by"])

    def test_EdgeThatIsNoNumber_IsRefused(self):
        for edge in ("0", "-1", "4k", ""):
            self.assertEqual(check("--product-edge", edge).returncode, 2, edge)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
