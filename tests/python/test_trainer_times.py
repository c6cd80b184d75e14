"""The shortest run of trainer_times.py prints every figure."""

import os

import pytest

for package in ("transformers", "accelerate", "lightning"):
    pytest.importorskip(package)

import trainer_times


def test_every_trainer_is_measured():
    before = dict(os.environ)
    try:
        found = trainer_times.measure(width=64, layers=4, steps=5)
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert set(found) == {"transformers", "lightning"}
    assert all(0 < ratio < 100 for ratios in found.values() for ratio in ratios)
