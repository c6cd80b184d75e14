"""Tests of the Python package. GEMINID_LIBRARY and GEMINID_DAEMON say where the build is; each process has a
daemon of its own."""

import os

os.environ.pop("GEMINID_SOCKET", None)
