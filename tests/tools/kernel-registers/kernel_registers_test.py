"""Tests tools/kernel-registers on fake reports. One of them has register spills."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).parents[3] / "tools" / "kernel-registers"

KERNEL = """ptxas info    : Compiling entry function '{name}' for 'sm_90'
ptxas info    : Function properties for {name}
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, 2048 bytes smem
"""

PTX = """.visible .entry a(
	.param .align 8 .b8 a_param_0[8]
)
{
	.reg .b32 	%r<3>;
	mov.u32 	%r1, %ctaid.x;
$L__BB0_1:
	@%p2 bra 	$L__BB0_1;
	@!%p2 ld.global.nc.f32 	%f1, [%rd1];
	atom.global.add.u32 	%r1, [%rd1], 1;
	ret;
}
.func helper()
{
	ret;
}
"""
NVCC = """#!/bin/sh
if [ "$1" = --version ]; then echo "Build cuda_13.0, V{version}"; else cat "$2"; fi
"""


class KernelRegisters(unittest.TestCase):
    def run_on(self, *reports):
        with tempfile.TemporaryDirectory() as build:
            folder = pathlib.Path(build) / "kernels" / "images"
            folder.mkdir(parents=True)
            for number, report in enumerate(reports):
                (folder / f"{number}.ptxas").write_text(report)
            return subprocess.run([sys.executable, TOOL, build], capture_output=True, text=True)

    def test_kernels_that_fit_are_listed_with_their_numbers(self):
        done = self.run_on(KERNEL.format(name="a", stack=0, stores=0, loads=0, registers=40))
        self.assertEqual(done.returncode, 0)
        self.assertIn("1 kernels, at most 40 registers, 0 spill", done.stdout)
        line = next(row for row in done.stdout.splitlines() if row.startswith("a "))
        self.assertEqual(line.split(), ["a", "sm_90", "40", "0", "2048", "1638"])

    def test_a_kernel_that_spills_is_named_and_fails(self):
        for stores, loads in ((8, 0), (0, 8)):
            done = self.run_on(KERNEL.format(name="a", stack=0, stores=0, loads=0, registers=40),
                               KERNEL.format(name="b", stack=8, stores=stores, loads=loads,
                                             registers=255))
            self.assertEqual(done.returncode, 1)
            self.assertIn("b for sm_90 spills 8 bytes", done.stderr)
            self.assertNotIn("a for sm_90", done.stderr)

    def test_a_stack_without_spills_is_no_failure(self):
        done = self.run_on(KERNEL.format(name="a", stack=64, stores=0, loads=0, registers=40))
        self.assertEqual(done.returncode, 0)

    def table_of(self, report, *more, version="13.0.1", table=None):
        """Returns the tool's exit and the table that it wrote."""
        with tempfile.TemporaryDirectory() as name:
            build = pathlib.Path(name)
            (build / "kernels/images").mkdir(parents=True)
            (build / "kernels/images/0.ptxas").write_text(report)
            (build / "it.cu").write_text(PTX)
            nvcc = build / "nvcc"
            nvcc.write_text(NVCC.format(version=version))
            nvcc.chmod(0o755)
            path = build / "table.json"
            if table:
                path.write_text(json.dumps(table))
            done = subprocess.run([sys.executable, TOOL, name, *more, path, "--nvcc", nvcc, "--ptx", build / "it.cu"],
                                  capture_output=True, text=True)
            return done, json.loads(path.read_text())

    def test_a_table_has_every_architecture_and_the_instructions(self):
        report = KERNEL.format(name="a", stack=0, stores=0, loads=0, registers=40)
        _, table = self.table_of(report, "--write")
        self.assertEqual(table["compiler"], "13.0.1")
        self.assertEqual(table["kernels"], {"a": {"registers": {"sm_90": 40}, "shared": 2048,
                                                  "ptx": {"instructions": 5, "global": 2}}})
        _, table = self.table_of(report.replace("sm_90", "sm_75"), "--write", table=table)
        self.assertEqual(table["kernels"]["a"]["registers"], {"sm_90": 40, "sm_75": 40})
        _, table = self.table_of(report, "--write", version="13.1.0", table=table)
        self.assertEqual(table["kernels"]["a"]["registers"], {"sm_90": 40})

    def test_numbers_that_the_table_lacks_are_found(self):
        report = KERNEL.format(name="a", stack=0, stores=0, loads=0, registers=40)
        _, table = self.table_of(report, "--write")
        self.assertEqual(self.table_of(report, "--compare", table=table)[0].returncode, 0)
        for other in (report.replace("40", "41"), report + report.replace("'a'", "'b'"), report.replace("'a'", "'b'")):
            self.assertNotEqual(self.table_of(other, "--compare", table=table)[0].returncode, 0)
        table["kernels"]["a"]["ptx"]["instructions"] = 6
        done, _ = self.table_of(report, "--compare", table=table)
        self.assertEqual(done.returncode, 1)
        self.assertIn("a: is ", done.stderr)

    def test_numbers_of_another_compiler_are_not_compared(self):
        report = KERNEL.format(name="a", stack=0, stores=0, loads=0, registers=40)
        _, table = self.table_of(report, "--write")
        done, _ = self.table_of(report.replace("40", "41"), "--compare", version="13.1.0", table=table)
        self.assertEqual(done.returncode, 0)
        self.assertIn("not compared", done.stdout)

    def test_a_build_without_reports_is_no_success(self):
        self.assertEqual(self.run_on().returncode, 3)
        self.assertEqual(self.run_on("nvcc fatal : what").returncode, 3)


if __name__ == "__main__":
    unittest.main()
