"""geminid.torch.resume: a restarted process continues where the previous process died.

Weights and the optimizer's state are in the daemon's memory, as of the last committed step. All other state is in a
note, which each rank writes before it commits a step: the state of the script at its call of optimizer.step().
The process that takes over repeats that iteration. The results of its forward and backward passes are not used. Its
optimizer.step() changes no weights, but restores the state of the note. So the code after optimizer.step() runs as if
nothing had happened, however much of it the previous process had run.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import random
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Protocol, TypeVar

import torch

from geminid.errors import DataLoss, Refused
from geminid.torch.elastic import place_in_pass
from geminid.torch.holding import starts_before
from geminid.torch.optimizer import Optimizer

T = TypeVar("T")


class Stateful(Protocol):
    """An object whose state changes in training, such as a scheduler or a gradient scaler."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the state, which can be pickled."""

    def load_state_dict(self, state: Any) -> Any:
        """Loads the state of another object."""


def _random_state() -> bytes:
    """Returns the state of every global generator, as bytes: many notes contain it."""
    of_torch = torch.get_rng_state()
    state: dict[str, Any] = {"python": random.getstate(), "torch": ctypes.string_at(of_torch.data_ptr(), of_torch.numel())}
    if "numpy" in sys.modules:
        state["numpy"] = sys.modules["numpy"].random.get_state()
    cuda: Any = torch.cuda
    if cuda.is_available() and cuda.is_initialized():
        state["cuda"] = cuda.get_rng_state_all()
    return pickle.dumps(state)


def _set_random_state(saved: bytes) -> None:
    if not saved:
        return
    state = pickle.loads(saved)
    random.setstate(state["python"])
    torch.set_rng_state(torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8))
    if "numpy" in state:
        import numpy
        numpy.random.set_state(state["numpy"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])


def _generators(loader: Any) -> list[torch.Generator]:
    """Returns the random generators that a loader and its samplers own."""
    samplers = [getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)]
    owners = [loader, *samplers, getattr(samplers[1], "sampler", None)]
    found = dict.fromkeys(getattr(owner, "generator", None) for owner in owners)
    return [each for each in found if isinstance(each, torch.Generator)]


def persistent_buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the buffers that a state_dict has, such as the running means of batch norms."""
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}", buffer


def _at_random_state(loader: Iterable[T], place: _Place) -> Iterator[T]:
    """Repeats a pass over the loader in its first order. Outside of the loader the generators do not go back."""
    for generator, state in zip(_generators(loader), place.generators):
        generator.set_state(state)
    now = _random_state()
    _set_random_state(place.random_at_pass)
    for number, batch in enumerate(loader):
        if number == 0:
            _set_random_state(now)
        yield batch


def _length(loader: Iterable[Any]) -> int | None:
    """Returns the length or None if unknown. The len() of a DataLoader raises if its dataset has no length."""
    try:
        return len(loader) if isinstance(loader, Sized) else None
    except TypeError:
        return None


def _load(note: bytes) -> dict[str, Any]:
    return dict(torch.load(io.BytesIO(note), weights_only=False))


def _all_alike(states: Sequence[Sequence[torch.Tensor]]) -> bool:
    return all(len(state) == len(states[0]) and all(map(torch.equal, state, states[0])) for state in states)


def note_for(rank: int, notes: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Returns the note that this rank resumes from, of the notes of another number of ranks. A rank whose number did not
    exist before takes the first rank's note without the states of global generators: it keeps its script's own. It takes
    the states of loaders' generators only if all ranks had the same."""
    if rank in notes:
        return notes[rank]
    note = notes[min(notes)]
    place = note["place"]
    place.random_at_index, place.random_at_pass, note["random"] = b"", b"", b""
    if not _all_alike([other["place"].generators for other in notes.values()]):
        place.generators = []
    return note


def buffer_bytes(model: torch.nn.Module) -> int:
    return sum(buffer.numel() * buffer.element_size() for _, buffer in persistent_buffers(model))


class _Place:
    """The position of a script in its loops. `outcomes`: of optimizer.step() since this position; False if a scaler skipped
    the step. `values`: of Run.same since this position."""

    def __init__(self) -> None:
        self.index: int | None = None
        self.passes = 0
        self.come_to(None)
        self.random_at_index, self.random_at_pass = b"", b""  # at the begin of the index and of the pass; empty: unknown
        self.generators: list[torch.Tensor] = []
        self.stepped, self.every = -1, 1  # the last step's batch, and its number of batches

    def come_to(self, batch: int | None) -> None:
        self.batch = batch
        self.outcomes: list[bool] = []
        self.values: list[Any] = []

    def note_outcome(self, is_step: bool) -> None:
        self.outcomes.append(is_step)
        if self.batch is not None and self.batch > self.stepped:
            self.every, self.stepped = self.batch - self.stepped, self.batch

    def where(self) -> tuple[int | None, int, int | None]:
        return self.index, self.passes, self.batch

    def words(self) -> str:
        index = "outside of run.range" if self.index is None else f"at {self.index} of run.range"
        return index if self.batch is None else f"{index}, at batch {self.batch}"


class Run:
    """The result of ``resume``. resumed: whether this process continues from another process's state. step: the number of
    committed steps. replays: whether the previous process had committed this iteration's step. Then the weights
    are those after that step, and `same` returns values computed with the weights before it. ranks_before: the previous
    number of ranks if the run continues with another number or on other hosts, else 0. batches_before: the number of batches
    of the current pass that all previous ranks had trained together."""

    def __init__(self, model: torch.nn.Module, objects: tuple[Stateful, ...]) -> None:
        self.step, self.resumed = 0, False
        self.ranks_before, self.batches_before = 0, 0
        self._model, self._objects = model, objects
        self._keeper: Any = getattr(model, "_geminid_keeper", None)
        self._holding: Any = None if self._keeper is None else self._keeper.holding
        self._place = _Place()
        self._left: dict[str, Any] | None = None
        if self._keeper is not None:
            self.step = self._keeper.engine.committed
            self._take_over()

    @property
    def replays(self) -> bool:
        """Whether the previous process had committed this iteration's step."""
        return self._left is not None

    def _left_place(self) -> _Place | None:
        place: _Place | None = None if self._left is None else self._left["place"]
        return place

    # --- loops -----------------------------------------------------------------------------------

    def range(self, *bounds: int) -> Iterator[int]:
        """As the built-in range, for epochs or steps. It begins with the number at which the previous process died."""
        numbers = range(*bounds)
        if self._place.index is not None:
            raise Refused("run.range is for one loop at a time: the outermost one")
        left = self._left_place()
        if left is not None and left.index is not None:
            if left.index not in numbers:
                raise Refused(f"the process before this one died {left.words()}, which is not in {numbers}")
            numbers = numbers[numbers.index(left.index):]
            _set_random_state(left.random_at_index)
        try:
            for number in numbers:
                place = self._place = _Place()
                place.index, place.random_at_index = number, _random_state()
                yield number
        finally:
            self._place = _Place()

    def enumerate(self, loader: Iterable[T]) -> Iterator[tuple[int, T]]:
        """Yields (number, batch) of one pass over a loader. It draws the batches that the previous process trained from the
        loader and drops them."""
        place, left = self._place, self._left_place()
        if left is not None and left.index != place.index:
            left = None
        place.passes += 1
        place.stepped, place.every = -1, 1
        if left is not None and place.passes <= left.passes and (place.passes < left.passes or left.batch is None):
            return
        if left is not None and place.passes > left.passes:
            left = None
        if left is not None:
            _set_random_state(left.random_at_pass)
            for generator, state in zip(_generators(loader), left.generators):
                generator.set_state(state)
        place.come_to(None)
        place.random_at_pass = _random_state()
        place.generators = [generator.get_state() for generator in _generators(loader)]
        begins_again = left is not None and self._share_out(left, loader)
        skipped = 0 if left is None or left.batch is None else left.batch
        try:
            for number, batch in self._draw(loader, place):
                if number >= skipped:
                    yield number, batch
                    if begins_again:
                        break
            if begins_again:  # the batch was for the step that was already committed
                place.stepped, place.every = -1, 1
                yield from self._draw(_at_random_state(loader, place), place)
        finally:
            place.come_to(None)

    def _draw(self, loader: Iterable[T], place: _Place) -> Iterator[tuple[int, T]]:
        for number, batch in enumerate(loader):
            if self._place is not place:
                raise Refused("a pass of run.batches goes on in another iteration of run.range than it began in, which "
                              "a process that takes over could not find again; loop over run.batches alone")
            place.come_to(number)
            yield number, batch

    def _share_out(self, left: _Place, loader: Iterable[Any]) -> bool:
        """Finds where these ranks continue in a pass of other ranks. Returns whether that is the begin of the pass."""
        if not self.ranks_before or left.batch is None:
            return False
        now, length = self._keeper.ranks.world_size, _length(loader)
        self.batches_before = self.ranks_before * (left.batch + 1)
        found = place_in_pass(left.batch, left.every, self.ranks_before, now, length)
        left.batch = found.replayed
        if self._keeper.ranks.rank == 0:
            again = f"; {found.repeated} of these come again" if found.repeated else ""
            print(f"geminid: of this pass, {self.batches_before} batches were trained; each of {now} ranks goes on with its "
                  f"batch {found.consumed}{again}", file=sys.stderr, flush=True)
        return found.consumed == 0

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """As enumerate, without the numbers."""
        for _, batch in self.enumerate(loader):
            yield batch

    def same(self, value: T) -> T:
        """Returns the value, or in a replayed iteration the value that the previous process gave here. Use it for values that
        are computed before optimizer.step() and used after it, such as the loss to log. No tensors of the graph."""
        values = self._place.values
        left = self._left_place()
        if left is not None and self._place.where() == left.where():
            before = left.values
            value = before[len(values)] if len(values) < len(before) else value
        values.append(value)
        return value

    # --- notes -----------------------------------------------------------------------------------

    def _write_note(self) -> None:
        buffers = dict(persistent_buffers(self._model))
        groups = [{key: value for key, value in group.items() if key != "params"} for group in self._groups()]
        data = io.BytesIO()
        zeros = sorted(record.id for record in self._keeper.gradients.zeros)
        torch.save({"place": self._place, "groups": groups, "buffers": buffers, "random": _random_state(), "zeros": zeros,
                    "objects": [(type(each).__name__, each.state_dict()) for each in self._objects]}, data)
        self._holding.notes.write(self.step + 1, data.getvalue())

    def _groups(self) -> list[dict[str, Any]]:
        return list(self._keeper.optimizer().param_groups)

    def _note_left(self) -> dict[str, Any] | None:
        """Returns the note of the previous process, or of one of the previous ranks."""
        handed = None if self._holding is None else self._holding.handed
        if handed is not None and handed.world:
            self.ranks_before = handed.world
            return note_for(self._keeper.ranks.rank, {rank: _load(note) for rank, note in handed.notes.items()})
        if self._keeper.engine.resumed() is None:
            return None
        data = self._holding and self._holding.notes.read(self.step)
        if data is None:
            raise DataLoss(f"the weights of step {self.step} are in memory, but the rest of the run's state is missing; the process "
                           "before had another geminid, or ran out of memory. Free them with `geminictl end JOB`")
        return _load(data)

    def _take_over(self) -> None:
        self._left = self._note_left()
        if self._left is not None:
            self.resumed = True
            names = [type(each).__name__ for each in self._objects]
            before = [name for name, _ in self._left["objects"]]
            if names != before:
                raise Refused(f"geminid.torch.resume is given {names}, and the process before gave it {before}")
            self._put_in_place()
        if self._keeper.ranks.rank == 0 and (self.resumed or (self._holding and (starts_before() or self._holding.handed))):
            print(f"geminid: start {starts_before() + 1}: {self._where()}", file=sys.stderr, flush=True)

    def _where(self) -> str:
        """Returns a description of where the run continues, for the log."""
        if self.ranks_before:
            return (f"goes on after step {self.step}, from the memory of {self.ranks_before} "
                    f"rank{'s' if self.ranks_before > 1 else ''}, now {self._keeper.ranks.world_size}")
        if self.resumed:
            return f"goes on after step {self.step}, from memory"
        missing = self._holding.handed.why_not if self._holding.handed is not None else ""
        return (f"not all ranks left their state in memory{f' ({missing})' if missing else ''}; begins anew. A script that "
                "saves checkpoints loads the newest where `not run.resumed`")

    def _put_in_place(self) -> None:
        left: Any = self._left
        for each, (_, state) in zip(self._objects, left["objects"]):
            each.load_state_dict(state)
        for group, values in zip(self._groups(), left["groups"]):
            group.update(values)
        self._keeper.gradients.zeros = {self._keeper.records[id_] for id_ in left["zeros"]}
        with torch.no_grad():
            for name, buffer in persistent_buffers(self._model):
                buffer.copy_(left["buffers"][name])

    # --- what the optimizer asks -----------------------------------------------------------------

    def replays_step(self) -> bool:
        """Returns True if the previous process has committed this step. False: the caller makes it; the note is written."""
        if self._holding is None:
            return False
        if self._place.index is None and self._place.batch is None:
            raise Refused("optimizer.step() outside of run.range and run.batches: a process that takes over would not "
                          "know where to go on. Loop over them (geminid.torch.resume)")
        self._place.note_outcome(True)
        note = self._left
        if note is None:
            self._write_note()
            return False
        left = note["place"]
        if self._place.where() != left.where():
            raise Refused(f"this process makes its first step {self._place.words()}, and the one before it died "
                          f"{left.words()}: loop over run.range and run.batches as that one did")
        if len(self._place.outcomes) >= len(left.outcomes):
            self._put_in_place()
            _set_random_state(note["random"])
            self._left = None
        return True

    def replays_unscale(self, finite: bool) -> bool:
        """Returns whether the gradients were finite in the previous process, if that made the step. Else returns `finite`."""
        if self._holding is None:
            return finite
        outcomes = self._place.outcomes
        left = self._left_place()
        if left is not None:
            before = left.outcomes
            finite = before[len(outcomes)] if len(outcomes) < len(before) else True
        if not finite:
            self._place.note_outcome(False)
        return finite


def resume(model: torch.nn.Module, *objects: Stateful) -> Run:
    """Continues where a previous process died, or begins a run. Call it after ``prepare(..., resume=True)``.

        run = geminid.torch.resume(model, scheduler, scaler)
        for epoch in run.range(EPOCHS):
            for tokens, labels in run.batches(loader):
                ...                            # as it was, but for numbers of the forward that are used after
                loss.backward()                # the step: run.same(loss.item())

    objects: objects with state_dict and load_state_dict that change while the model trains: schedulers, scalers,
        metrics. (Model and optimizer are allowed but not needed.) Their state is saved at each optimizer.step(),
        with the optimizer's groups, the model's persistent buffers and the global random generators.

    Raises Refused if the script differs from the previous process's. Also accepts a model that is not prepared, or
    prepared without resume: then nothing is saved.
    """
    keeper = getattr(model, "_geminid_keeper", None)
    if keeper is not None and keeper.run is not None:
        raise Refused("geminid.torch.resume was called for this model before")
    run = Run(model, tuple(each for each in objects if each is not model and not isinstance(each, Optimizer)))
    if keeper is not None:
        keeper.run = run
    return run
