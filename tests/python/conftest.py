"""Tests of the Python package. GEMINID_LIBRARY and GEMINID_DAEMON say where the build is; each process has a
daemon of its own."""

import os

os.environ.pop("GEMINID_SOCKET", None)
import torch

torch.set_num_threads(1)  # threads that spin would wait for the processors of the engine
