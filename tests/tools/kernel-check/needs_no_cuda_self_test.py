"""needs_no_cuda.py finds each violation."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from needs_no_cuda import complaints  # noqa: E402

LINE = " 0x0000000000000001 (NEEDED)             Shared library: [{}]\n"


class NeedsNoCuda(unittest.TestCase):
    def test_every_library_of_cuda_is_found(self):
        for name in ("libcuda.so.1", "libcudart.so.13", "libnvidia-ml.so.1", "libcublasLt.so.13",
                     "libcudnn.so.9", "libnccl.so.2"):
            self.assertTrue(complaints("p", LINE.format(name), b""), name)

    def test_the_runtime_inside_is_found(self):
        self.assertTrue(complaints("p", "", b"\0cudaLaunchKernel\0"))

    def test_other_libraries_are_nobodys_business(self):
        self.assertFalse(complaints("p", LINE.format("libhwy.so.1"), b"cuLaunchKernel"))


if __name__ == "__main__":
    unittest.main()
