"""tools/kernel-registers on reports made up for it, one of which spills."""
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

    def test_a_build_without_reports_is_no_success(self):
        self.assertEqual(self.run_on().returncode, 3)
        self.assertEqual(self.run_on("nvcc fatal : what").returncode, 3)


if __name__ == "__main__":
    unittest.main()
