#!/usr/bin/env python3
"""native_test.py CMAKE SCRIPT: tests the architectures that kernels are compiled for if the script asks the machine's GPUs."""

import pathlib
import subprocess
import sys
import tempfile
import unittest


class Native(unittest.TestCase):
    def compiled_for(self, nvidia_smi, asked="native"):
        return self.configured(nvidia_smi, asked, "OFF")["for"]

    def configured(self, nvidia_smi, architectures, cuda):
        """Returns the script's decision on a machine with this nvidia-smi (or none) and this compiler."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            if nvidia_smi is not None:
                program = folder / "nvidia-smi"
                program.write_text(f"#!/bin/sh\n{nvidia_smi}\n")
                program.chmod(0o755)
            nvcc = folder / "nvcc"
            nvcc.write_text("#!/bin/sh\n")
            nvcc.chmod(0o755)
            script = folder / "script.cmake"
            script.write_text('cmake_minimum_required(VERSION 3.25)\n'
                              f'set(GEMINID_CUDA_ARCHITECTURES "{architectures}")\nset(GEMINID_CUDA {cuda})\n'
                              f'include("{SCRIPT}")\nmessage("for=${{GEMINID_CUDA_ARCHITECTURES}}=")\n'
                              'message("kernels=${GEMINID_HAS_CUDA}=")\n')
            done = subprocess.run([CMAKE, "-P", script], env={"PATH": name}, check=True,
                                  capture_output=True, text=True)
            return {name: done.stderr.split(f"{name}=")[1].split("=")[0] for name in ("for", "kernels")}

    def test_each_kind_of_gpu_once_and_ascending(self):
        self.assertEqual(self.compiled_for("echo 10.0; echo 9.0; echo 10.0; echo 8.6"), "86;90;100")

    def test_without_gpu_it_is_the_oldest(self):
        self.assertEqual(self.compiled_for(None), "75")
        self.assertEqual(self.compiled_for("echo No devices were found; exit 6"), "75")

    def test_what_is_named_is_left_alone(self):
        self.assertEqual(self.compiled_for("echo 9.0", "80;86"), "80;86")

    def test_native_kernels_are_compiled_only_where_a_gpu_can_run_them(self):
        self.assertEqual(self.configured("echo 9.0", "native", "NATIVE"), {"for": "90", "kernels": "ON"})
        self.assertEqual(self.configured(None, "native", "NATIVE")["kernels"], "OFF")
        self.assertEqual(self.configured(None, "native", "AUTO")["kernels"], "ON")


if __name__ == "__main__":
    CMAKE, SCRIPT = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
