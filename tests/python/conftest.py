"""Tests of the Python package. GEMINID_LIBRARY and GEMINID_DAEMON say where the build is; each process has a
daemon of its own."""

import os

os.environ.pop("GEMINID_SOCKET", None)
import pytest
import torch

import twins
from models import make
from steps import one_batch

torch.set_num_threads(1)  # threads that spin would wait for the processors of the engine


@pytest.fixture
def both():
    """Plain torch and a prepared model, of which the test asks what is refused."""
    pair = twins.pair(make("gpt"), device_memory="448KiB")
    twins.run(pair, one_batch, steps=1)
    yield pair
    # Whatever was refused, the next steps are right.
    twins.run(pair, one_batch, steps=3)
    twins.assert_same(pair)
