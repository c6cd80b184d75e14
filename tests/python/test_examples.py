"""Runs each program of python/examples with the engine and without."""

import os
import pathlib
import re
import runpy
import sys

import pytest
import torch
import twins

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "python/examples"
#: The packages that each program needs in addition to torch.
NEEDED = {"loop": (), "feedback": (), "hugging_face": ("transformers", "accelerate"),
          "adapters": ("transformers", "accelerate", "peft"), "lightning_fit": ("lightning",),
          "accelerate_loop": ("accelerate",), "jax_blocks": ("jax",), "jax_trees": ("jax",), "ray_train": ("ray",),
          "llamafactory_plugin": ("transformers", "llamafactory", "omegaconf", "torchdata"),
          "torchtitan_checkpoints": ("torchtitan", "tyro", "docstring_parser")}
OF_THEIR_OWN = {"ray_train", "torchtitan_checkpoints"}  # Ray takes a minute to start; the other needs an engine
LOSS = 1e-6  # relative; fp32 has summed the losses


def losses_of(name, capfd):
    before = dict(os.environ)
    try:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        os.environ.clear()
        os.environ.update(before)
    return [float(loss) for loss in re.findall(r"^loss (\S+)$", capfd.readouterr().out, re.MULTILINE)]


def test_every_example_is_run():
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(NEEDED)


@pytest.mark.parametrize("name", sorted(set(NEEDED) - OF_THEIR_OWN))
def test_example_prints_the_losses_that_it_prints_without_the_engine(name, capfd, monkeypatch):
    for package in NEEDED[name]:
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [name])
    made = losses_of(name, capfd)
    monkeypatch.setenv("GEMINID_DISABLE", "1")
    expected = losses_of(name, capfd)
    sys.modules.pop("loop", None)
    assert len(made) >= 4
    twins.assert_close(made, expected, LOSS, name)


def test_checkpoint_manager_of_torchtitan_is_gone_on_from(capfd, monkeypatch):
    for package in NEEDED["torchtitan_checkpoints"]:
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    losses = losses_of("torchtitan_checkpoints", capfd)
    sys.modules.pop("loop", None)
    assert len(losses) == 7 and losses[5:] == losses[3:5]
