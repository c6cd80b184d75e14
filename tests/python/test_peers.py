"""The shortest run of tools/peers, and the contents of its table."""

import json
import pathlib
import sys
import types

import pytest
import twins

ROOT = pathlib.Path(__file__).resolve().parents[2]
peers = types.ModuleType("peers")
peers.__file__ = str(ROOT / "tools/peers")
exec((ROOT / "tools/peers").read_text(encoding="utf-8"), peers.__dict__)
SMALL = ["--layers", "2", "--width", "64", "--batch", "2", "--length", "16", "--steps", "4", "--device-memory", "4MiB"]


def test_geminid_has_the_losses_of_plain_torch_and_survives_its_death(tmp_path, capfd):
    assert peers.main([*SMALL, "--python", sys.executable, "--only", "plain", "geminid_resume", "--json", str(tmp_path / "made.json")]) == 0
    made = json.loads((tmp_path / "made.json").read_text())["peers"]
    twins.assert_close(made["geminid_resume"]["losses"], made["plain"]["losses"], 1e-6, "losses")
    assert {loop: found["steps_kept"] for loop, found in made.items()} == {"plain": 0, "geminid_resume": 1}
    rows = capfd.readouterr().out.strip().splitlines()[-2:]
    assert [row.split(" | ")[4] for row in rows] == ["0", "6"]


def test_peer_that_does_not_run_is_listed_with_its_reason():
    absent = peers.catalogue.Peer("plain", "nobody", ("package|that-is-not-there",))
    found = {"reason": "ERROR: no matching | distribution"}
    assert peers.row(absent, found)[-1] == "not run: ERROR: no matching / distribution"
    gpu_alone = peers.catalogue.Peer("plain", "gpu alone", devices=("cuda",), why_not="it needs a GPU")
    assert peers.measure(gpu_alone, sys.executable, {"device": "cpu"}) == {"reason": "it needs a GPU"}


@pytest.mark.parametrize("text, changed", [("a\nb\n", 0), ("a\n\nx\nb\n", 1), ("a\nc\n", 1), ("a\n", 1), ("x\na\nc\nd\n", 3)])
def test_lines_that_are_new_gone_or_different_count(text, changed):
    assert peers.catalogue.lines_changed(text, "a\nb\n") == changed
