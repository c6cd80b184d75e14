"""The program of the README, as a newcomer runs it."""

import os
import pathlib
import re
import sys
import types

import pytest

pytest.importorskip("transformers")
import transformers

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/newcomer"
newcomer = types.ModuleType("newcomer")
newcomer.__file__ = str(TOOL)
exec(TOOL.read_text(), newcomer.__dict__)


def test_program_of_the_readme_trains_prints_its_plan_and_saves(tmp_path):
    source = newcomer.program()
    said, lines = newcomer.timed(sys.executable, tmp_path, source, dict(os.environ))
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", said)]
    assert len(losses) == 20 and losses[-1] < losses[0] - 0.05
    assert "plan" in said
    assert len(lines) == len(newcomer.statements(source))
    before, after = (transformers.AutoModelForCausalLM.from_pretrained(tmp_path / folder).state_dict()
                     for folder in (newcomer.model_of(source), "tuned"))
    assert list(before) == list(after)
    assert not (before["transformer.wte.weight"] == after["transformer.wte.weight"]).all()


def test_line_that_fails_ends_it_with_what_was_said(tmp_path):
    source = newcomer.program().replace("20", "'20'")
    with pytest.raises(SystemExit, match="TypeError"):
        newcomer.timed(sys.executable, tmp_path, source, dict(os.environ))
