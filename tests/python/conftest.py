"""Tests of the Python package. GEMINID_LIBRARY and GEMINID_DAEMON name the build. Each process starts its own
daemon."""

import os

os.environ.pop("GEMINID_SOCKET", None)
import pytest
import torch

import twins
from models import make
from steps import one_batch

torch.set_num_threads(1)  # spinning threads would take the CPUs that the engine needs


@pytest.fixture
def both():
    """Yields twins of plain torch and a prepared model, on which a test tries refused actions."""
    pair = twins.pair(make("gpt"), device_memory="448KiB")
    twins.run(pair, one_batch, steps=1)
    yield pair
    # After every refusal the next steps are still correct.
    twins.run(pair, one_batch, steps=3)
    twins.assert_same(pair)
