"""The displays of a prepared model: its plan as a table and a picture, progress, curves, and ranges in a profile."""

import io
import re
import types
import xml.etree.ElementTree as xml

import pytest
import torch

import geminid.torch
import twins
from geminid import errors
from geminid.torch import picture
from geminid.torch import progress_line, readings
from models import batch, make
from steps import one_batch

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def ours():
    both = twins.pair(make("gpt"), device_memory="448KiB")
    twins.run(both, one_batch, steps=3)
    return both[1]


def test_explanation_prints_the_table_and_has_the_picture(ours, capsys, tmp_path):
    made = geminid.torch.explain(ours.model)
    assert capsys.readouterr().out == made.table + "\n" == f"{made}\n"
    assert repr(made) == f"<plan of {len(made.plan['moments'])} moments; .save('plan.svg') writes its picture>"
    assert re.search(r"^device memory +448 KiB$", made.table, re.MULTILINE) and "plans made" in made.table
    # A row for each moment of the plan, with the weights in use.
    assert re.search(r"^\d+: blocks\.1\.\S+ to blocks\.1\.", made.table, re.MULTILINE), made.table
    assert len(made.plan["moments"]) == len(re.findall(r"^\d+: ", made.table, re.MULTILINE))
    made.save(tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").read_text() == made.svg == made._repr_svg_()


def test_plan_moves_what_does_not_fit_and_never_has_more_than_there_is(ours):
    plan = ours.model._geminid_keeper.engine.plan()
    chunks = plan["chunks"]
    assert not plan["everything_fits"] and plan["arena_bytes"] <= 448 << 10
    loaded = sum(chunks[load["chunk"]]["transfer_bytes"] for moment in plan["moments"] for load in moment["loads"])
    assert loaded == plan["transfer_bytes"] > 0
    rows = picture.memory_of(plan)
    assert all(0 < sum(row.values()) <= plan["arena_bytes"] for row in rows)
    # The weights that a moment uses are on the device.
    for row, moment in zip(rows, plan["moments"]):
        assert row["weights"] >= sum(chunks[use]["device_bytes"] for use in set(moment["uses"]))


def test_picture_has_a_bar_for_what_is_on_the_device(ours):
    made = geminid.torch.explain(ours.model, file=io.StringIO())
    tree = xml.fromstring(made.svg)
    titles = [title.text for title in tree.iter(f"{SVG}title")]
    rows = picture.memory_of(made.plan)
    for number, row in enumerate(rows):
        for name, count in row.items():
            said = f"moment {number}: {name}, {readings.bytes_text(count)}"
            assert (said in titles) == (count > 0), said
    assert any(title.endswith("to the device") for title in titles)


def test_memory_of_a_plan_is_what_its_moves_say():
    """Two chunks of 10 and 20 bytes. The second arrives during the first moment, and leaves as a gradient across the end."""
    move = dict(loads=[], drops=[], uses=[], workspace_bytes=0)
    plan = {"chunks": [{"device_bytes": 10}, {"device_bytes": 20}], "resident_at_start": [{"chunk": 0, "offset": 0}],
            "moments": [{**move, "loads": [{"chunk": 1, "offset": 10, "deadline_moment": 1}]},
                        {**move, "workspace_bytes": 5},
                        {**move, "drops": [{"chunk": 1, "becomes_gradient": True, "free_moment": 1}]}]}
    made = picture.memory_of(plan)
    assert made[0] == {"weights": 10, "arriving": 20, "gradients leaving": 20, "workspace": 0}
    assert made[1] == {"weights": 30, "arriving": 0, "gradients leaving": 0, "workspace": 5}
    assert made[2] == {"weights": 30, "arriving": 0, "gradients leaving": 0, "workspace": 0}


def test_explanation_before_the_first_step_says_so(capsys):
    model = make("gpt")
    model, _ = twins.prepared(model, twins.adamw(model.parameters()))
    made = geminid.torch.explain(model)
    assert "there is no plan yet" in made.table and made.plan is None and "no plan" in made.svg


def test_parts_of_a_model_and_modules_around_it_are_explained_too(ours):
    around = torch.nn.Sequential(ours.model)
    for module in (ours.model.blocks[0], around):
        assert "448 KiB" in geminid.torch.explain(module, file=io.StringIO()).table


def test_model_that_is_not_prepared_is_told():
    with pytest.raises(errors.InvalidArgument, match="this Linear is not prepared: call geminid.torch.prepare"):
        geminid.torch.explain(torch.nn.Linear(2, 2))


def test_disabled_shows_what_there_is(monkeypatch, capsys):
    monkeypatch.setenv("GEMINID_DISABLE", "1")
    model, writer = torch.nn.Linear(2, 2), Writer()
    assert "GEMINID_DISABLE=1" in str(geminid.torch.explain(model))
    geminid.torch.log(model, writer)
    assert writer.said == [] and geminid.torch.statistics(model) == {}
    assert list(geminid.torch.progress([torch.ones(2, 2)], model)) and "1/1" in capsys.readouterr().err


class Writer:
    def __init__(self):
        self.said = []

    def add_scalar(self, tag, scalar_value, global_step=None):
        self.said.append((tag, scalar_value, global_step))


def test_curves_are_what_the_engine_says(ours, monkeypatch):
    now = iter((100.0, 102.0))
    monkeypatch.setattr(readings, "time", types.SimpleNamespace(monotonic=lambda: next(now)))
    writer = Writer()
    geminid.torch.log(ours.model, writer)
    said = ours.model._geminid_keeper.engine.statistics()
    values = {tag: value for tag, value, _ in writer.said}
    assert values["geminid/memory/device_bytes"] == said["model_bytes"]
    assert values["geminid/transfers/to_device_bytes"] == said["host_to_device_bytes"] > 0
    assert values["geminid/memory/host_bytes"] == said["host_bytes"] > 0
    assert {step for *_, step in writer.said} == {3} and "geminid/stalls/share" not in values
    assert sum(value for tag, value in values.items() if tag.startswith("geminid/stalls/") and tag.endswith("_seconds")) == (
        pytest.approx(values["geminid/stalls/seconds"]))
    writer.said.clear()
    geminid.torch.log(ours.model, writer, step=7)
    share, = (value for tag, value, step in writer.said if tag == "geminid/stalls/share" and step == 7)
    waited = ours.model._geminid_keeper.engine.statistics()["stall_seconds"] - said["stall_seconds"]
    assert share == pytest.approx(waited / 2.0)


def test_curves_while_a_step_is_under_way_are_of_the_step_before(ours, tmp_path):
    writer = Writer()
    geminid.torch.save(ours.model, tmp_path)
    for log in (lambda: ours.model(*batch(0)).backward(), ours.optimizer.step):
        log()
        geminid.torch.log(ours.model, writer)
    assert [step for tag, _, step in writer.said if tag == "geminid/stalls/seconds"] == [3, 4]
    geminid.torch.load(ours.model, tmp_path)
    ours.model(*batch(0))
    writer.said.clear()
    geminid.torch.log(ours.model, writer)
    assert {step for *_, step in writer.said} == {3}


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_line_of_progress_has_memory_speed_and_the_time_left(ours):
    clock, file = Clock(), Terminal()
    line = progress_line.ProgressLine(ours.model, 10, unit="tokens", file=file, clock=clock)
    for _ in range(4):
        clock.now += 2.0
        line.update(3000)
    shown = re.fullmatch(r"4/10 \| device ([\d.]+ \w*B) of 448 KiB \| host [\d.]+ \wiB \| stalls 0\.0 % "
                         r"\| 1\.5k tokens/s \| 0:12 left", line.line())
    assert shown, line.line()
    said = ours.model._geminid_keeper.engine.statistics()
    assert shown.group(1) == readings.bytes_text(said["model_bytes"])
    assert file.getvalue().count("\r") == 4 and "\n" not in file.getvalue()
    line.close()
    assert file.getvalue().endswith("\n")


def test_log_has_a_line_now_and_then_and_the_last_one(ours):
    clock, file = Clock(), io.StringIO()
    line = progress_line.ProgressLine(ours.model, file=file, clock=clock)
    for _ in range(70):
        clock.now += 1.0
        line.update()
    line.close()
    assert [text.split(" ")[0] for text in file.getvalue().splitlines()] == ["30", "60", "70"] and "\r" not in file.getvalue()
    assert file.getvalue().splitlines()[-1].endswith("| 1:10")


def test_progress_counts_batches_and_ends_its_line_at_a_break(ours):
    file = Terminal()
    batches = [{"input_ids": torch.ones(2, 5)}, (torch.ones(3, 4), 1), torch.tensor(1.0)]
    assert [progress_line.count_tokens(each) for each in batches] == [10, 12, 1]
    assert [progress_line.count_samples(each) for each in batches] == [2, 3, 1]
    for _ in geminid.torch.progress(batches, ours.model, unit="tokens", file=file):
        break
    assert file.getvalue().endswith("\n") and "0/3" in file.getvalue()
    with pytest.raises(ValueError, match="unit is 'words'.*samples.*tokens"):
        geminid.torch.progress(batches, ours.model, unit="words")


def test_profile_has_gathers_steps_and_gradients(ours):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        ours.model(*batch(0)).backward()
        twins.finish(ours)
    counts = {event.key: event.count for event in profile.key_averages() if event.key.startswith("geminid.")}
    parameters = len(list(ours.model.parameters()))
    assert counts["geminid.gather blocks.1"] == 2  # forward and backward
    assert counts["geminid.gather head"] == 2 and counts["geminid.step"] == 1 and counts["geminid.gradient_norm"] == 1
    assert sum(count for name, count in counts.items() if name.startswith("geminid.add_gradient ")) == parameters
    assert counts["geminid.release"] == sum(n for name, n in counts.items() if name.startswith("geminid.gather "))
