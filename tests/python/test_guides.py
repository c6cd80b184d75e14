"""All names on docs/coming-from.md and docs/trainers.md exist."""

import inspect
import pathlib

import pytest

for package in ("transformers", "lightning"):
    pytest.importorskip(package)

import geminid.torch
import geminid.transformers
import guides
from geminid.engine import Options

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
ARGUMENTS = {*inspect.signature(geminid.torch.prepare).parameters, *Options.__annotations__}


@pytest.mark.parametrize("page", ["coming-from.md", "trainers.md"])
def test_names_in_the_guide_exist(page):
    assert list(guides.missing((DOCS / page).read_text(encoding="utf-8"), ARGUMENTS)) == []


@pytest.mark.parametrize("cell, problem", [
    ("`geminid.torch.shard(model)`", "there is no geminid.torch.shard"),
    ("`geminid.elsewhere.prepare`", "there is no geminid.elsewhere.prepare"),
    ("`geminid.torch.save(model, place=folder)`", "geminid.torch.save takes no place"),
    ("`stage=3`", "nothing of ours takes stage"),
])
def test_name_that_does_not_exist_is_found(cell, problem):
    assert list(guides.missing(f"| theirs | ours |\n|---|---|\n| `x` | {cell} |\n", ARGUMENTS)) == [problem]
