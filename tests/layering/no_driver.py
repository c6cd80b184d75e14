#!/usr/bin/env python3
"""no_driver.py PROGRAM: checks that a program neither links nor loads a GPU's driver. Prints each
finding and exits with 1 if there is any.

  1. No library that the program needs, directly or indirectly, is of CUDA or NVIDIA.
  2. The program's file contains neither the name of the driver, of NVML or of the runtime, nor the name of
     the first call of each. So it has no symbol of them, and no name to give to dlopen or dlsym.
"""

import pathlib
import re
import subprocess
import sys

LIBRARY = re.compile(r"^\s*(\S*(?:libcuda|libcudart|libnvidia|libnccl|libcublas)\S*)", re.M)
NAMES = (b"libcuda.so", b"libcudart", b"libnvidia", b"cuInit", b"cuGetProcAddress", b"nvmlInit",
         b"cudaGetDevice")


def violations_of(contents, libraries):
    """Yields violations. contents: the file's bytes. libraries: the output of ldd."""
    for library in LIBRARY.findall(libraries):
        yield f"it links {library}"
    for name in NAMES:
        if name in contents:
            yield f"it knows {name.decode()}"


def main():
    program = pathlib.Path(sys.argv[1])
    libraries = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    found = list(violations_of(program.read_bytes(), libraries))
    for violation in found:
        print(f"{program.name}: {violation}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
