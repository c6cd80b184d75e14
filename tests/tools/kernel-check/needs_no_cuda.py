"""needs_no_cuda.py PROGRAM...: fails if a program needs a library of CUDA or of its driver to
start, or contains the CUDA runtime."""
import re
import subprocess
import sys

CUDA = re.compile(r"Shared library: \[(lib(?:cuda|cudart|nvidia-ml|cublas\w*|cudnn\w*|nccl)\.so[^\]]*)")
RUNTIME = re.compile(rb"cudaGetErrorString|cudaLaunchKernel")


def complaints(program, dynamic_section, content):
    found = [f"{program} needs {name}" for name in CUDA.findall(dynamic_section)]
    if RUNTIME.search(content):
        found.append(f"{program} holds the CUDA runtime")
    return found


def main(programs):
    found = []
    for program in programs:
        section = subprocess.run(["readelf", "-d", program], capture_output=True, text=True,
                                 check=True).stdout
        with open(program, "rb") as file:
            found += complaints(program, section, file.read())
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
