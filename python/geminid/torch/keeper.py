"""Which parameters are on the device, and for how long: the operations of a model's calls."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from geminid import engine as engine_
from geminid.errors import FailedPrecondition, Refused, ResourceExhausted
from geminid.torch.gradients import Gradients
from geminid.torch.tensors import tensors_in
from geminid.torch.threads import Turn
from geminid.torch.torch_memory import BACKWARD

if TYPE_CHECKING:
    from geminid.session import Ranks, Session
    from geminid.torch.activations import SavedTensors
    from geminid.torch.holding import Holding
    from geminid.torch.optimizer import Optimizer
    from geminid.torch.parameter import ManagedParameter, Record
    from geminid.torch.placing import Place
    from geminid.torch.resume import Run
    from geminid.torch.torch_memory import TorchMemory
    from geminid.torch.units import Unit

_NOT_IN_BACKWARD = -1
_TYPES = {engine_.FLOAT32: torch.float32, engine_.BFLOAT16: torch.bfloat16}  # of gradients
CLIP_EPSILON = 1e-6  # torch's and the engine's
_LEAST_NORM = math.ulp(0.0)  # above 0: its coefficient is 0 in fp32
_DISABLED = torch._C.DisableTorchFunctionSubclass


def in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != _NOT_IN_BACKWARD)


class Held:
    """What is on the device, and the engine's operation that keeps it there, if one does."""

    __slots__ = ("operation", "records")

    def __init__(self, operation: int | None, records: Sequence[Record]) -> None:
        self.operation, self.records = operation, records


class Call:
    """One call of a unit: held in its forward, and again in its backward from the first gradient of
    an output to the first of an input. Inputs come from nodes that the engine of autograd runs after
    all nodes of the call."""

    __slots__ = ("keeper", "unit", "held", "task")

    def __init__(self, keeper: Keeper, unit: Unit) -> None:
        self.keeper, self.unit = keeper, unit
        self.held: Held | None = None
        self.task: int | None = None

    def before_backward(self, _gradient: torch.Tensor | None) -> None:
        keeper = self.keeper
        task = keeper.backward()
        if self.task != task.id:
            self.task = task.id
            if keeper.torch_memory is not None:
                keeper.torch_memory.peaks.begin(self.unit, BACKWARD)
            self.held = keeper.hold(self.unit.ids, self.unit.records)
            task.calls.append(self)

    def after_backward(self, _gradient: torch.Tensor | None) -> None:
        held, self.held = self.held, None
        if held is not None:
            if self.keeper.torch_memory is not None:
                self.keeper.torch_memory.peaks.end(self.unit, BACKWARD)
            self.keeper.release(held)


class Task:
    """One backward pass of autograd's engine; reentrant checkpoints nest them."""

    __slots__ = ("id", "calls")

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.calls: list[Call] = []


class Keeper:
    """What a prepared model has open, and which of the engine's micro-batches it is in."""

    optimizer: weakref.ref[Optimizer]

    def __init__(self, engine: engine_.Engine, records: Sequence[Record], units: Sequence[Unit], place: Place,
                 granularity: str, session: Session, ranks: Ranks) -> None:
        self.engine, self.records, self.units, self.place = engine, records, units, place
        self.granularity, self.session, self.ranks = granularity, session, ranks
        self.holding: Holding | None = None  # of geminid.torch.resume
        self.run: Run | None = None
        self.torch_memory: TorchMemory | None = None  # on a GPU
        self.activations: SavedTensors | None = None  # where they are offloaded
        self.micro_batch_open = False
        self.has_gradient = False  # the engine, of this step
        self.norm_is_known = False  # after which the engine takes no more gradients of the step
        self.gradients = Gradients()
        self.clipping: tuple[float, float, float] | None = None  # (largest norm, norm, gradient_scale) when it was asked for
        self.gradient_scale = 1.0  # what the step's gradients were multiplied by
        self.depth = 0  # calls of the root that are in its forward
        self.changing = False  # interrupted while set: operations may be open that nobody knows
        self.tasks: dict[int, Task] = {}
        self.turn = Turn([unit.module for unit in units])
        self.full_blocks = 0  # of geminid.torch.full that are open
        self.open_calls: list[Call] = []  # of units that are in their forward with gradients
        self.outside: dict[Record, Held] = {}  # by the record of a parameter used outside of its module
        self.used_outside: set[Record] = set()  # since the last step
        for record in records:
            record.keeper = self
        for unit in units:
            unit.ids = (ctypes.c_uint32 * len(unit.records))(*(record.id for record in unit.records))

    # --- operations ------------------------------------------------------------------------------

    def hold(self, ids: Any, records: Sequence[Record]) -> Held:
        if torch.is_grad_enabled() or in_backward():
            if not self.micro_batch_open:
                self.begin_micro_batch()
            pass_ = engine_.FORWARD
        else:
            pass_ = engine_.EVALUATE
        self.changing = True
        held = Held(self.place.bring(self.engine, pass_, ids, records), records)
        for record in records:
            record.held += 1
        self.changing = False
        return held

    def hold_one(self, record: Record) -> Held:
        return self.hold((ctypes.c_uint32 * 1)(record.id), (record,))

    def release(self, held: Held) -> None:
        self.changing = True
        for record in held.records:
            record.held -= 1
        self.place.drop(self.engine, held.operation, held.records)
        self.changing = False

    def begin_micro_batch(self) -> None:
        if not self.micro_batch_open:
            if self.norm_is_known:
                raise Refused("clip_grad_norm_ or GradScaler.unscale_ has computed the norm of this step's gradients, after which "
                              "the engine takes no more of them; call optimizer.step() or optimizer.zero_grad() before the next "
                              "forward pass with gradients. With several backward passes in a step, ask for the norm after the "
                              "last one")
            self.release_outside()
            self.engine.begin_micro_batch()
            self.micro_batch_open = True

    def enter(self, is_model: bool) -> None:
        """Before a call of the model or of a unit. Raises Refused where another thread is in one."""
        if in_backward():
            return  # a checkpoint's forward, on whatever thread
        self.turn.enter(bool(self.tasks))
        if is_model:
            try:
                self.recover()
            except Refused:
                self.turn.refuse_me()
                raise

    def recover(self) -> None:
        """After an exception that no hook has seen, such as KeyboardInterrupt: nothing is open."""
        stale = self.changing or self.depth or self.tasks or any(unit.stack for unit in self.units)
        if not stale or in_backward():
            return
        self.turn.check_alone(bool(self.tasks))
        for record in self.records:
            record.held = 0
        self.place.drop_all(self.engine, self.records)
        for unit in self.units:
            unit.stack.clear()
        self.open_calls.clear()
        self.tasks.clear()
        self.outside.clear()
        self.used_outside.clear()
        self.depth, self.changing = 0, False
        if self.activations is not None:
            self.activations.end()
        if self.torch_memory is not None:
            self.torch_memory.peaks.forget_open()

    # --- parameters that are used outside of their module ----------------------------------------

    def keep_outside(self, record: Record, function: str, has_graph: bool) -> None:
        """On the device until the backward of what uses it has ended, or the forward around it. has_graph: autograd knows of
        the use."""
        wants_backward = torch.is_grad_enabled() and record.trained
        if not self.depth and (not wants_backward or not (has_graph or self._computes())):
            instead = "; for its value in a loss, parameter.clone().detach()" if wants_backward else ""
            raise Refused(f"{function} reads '{record.name}', which is not on the device now. "
                          "Between steps, read and change it in `with geminid.torch.full(module):`, or take "
                          f"model.state_dict(){instead}")
        try:
            self.hold_outside(record)
        except ResourceExhausted as problem:
            raise ResourceExhausted(
                f"{problem}. {function} uses '{record.name}' outside of its module, where it stays on the device until the "
                f"backward pass, as {len(self.outside)} others do. To read values between steps, take model.state_dict() or "
                "`with geminid.torch.full(module):`", problem.is_final) from None
        if wants_backward:
            self.used_outside.add(record)

    def _computes(self) -> bool:
        """Whether a module is in its forward, or autograd in a backward pass."""
        return in_backward() or any(unit.stack for unit in self.units)

    def hold_outside(self, record: Record) -> None:
        if record not in self.outside:
            self.outside[record] = self.hold_one(record)

    def release_outside(self) -> None:
        while self.outside:
            _, held = self.outside.popitem()
            self.release(held)

    def begin_backward_at(self, result: Any) -> None:
        """What a function returns that was given such a parameter: its backward needs them, too."""
        tensor: Any
        for tensor in tensors_in(result):
            if tensor.requires_grad and not tensor.is_leaf:
                tensor.register_hook(self.on_output)

    # --- backward --------------------------------------------------------------------------------

    def on_output(self, _gradient: torch.Tensor) -> None:
        self.backward()

    def backward(self) -> Task:
        """The pass that runs now."""
        id_ = torch._C._current_graph_task_id()
        task = self.tasks.get(id_)
        if task is None:
            self.check_closed("a backward pass")
            self.turn.check_caller()
            if torch.is_grad_enabled():
                raise Refused("backward with create_graph=True would read weights again that have left the device: "
                              "gradients of gradients are not supported with a prepared model. Leave create_graph out, "
                              "or train this model without geminid.torch.prepare")
            task = self.tasks[id_] = Task(id_)
            torch.autograd.Variable._execution_engine.queue_callback(lambda: self._end_task(id_))
            self.begin_micro_batch()
            for record in self.used_outside:
                self.hold_outside(record)
        return task

    def _end_task(self, id_: int) -> None:
        task = self.tasks.pop(id_, None)
        if task is None:
            return
        for call in task.calls:
            call.after_backward(None)
        if not self.tasks:
            self.release_outside()
            self.micro_batch_open = False

    def on_gradient(self, parameter: ManagedParameter) -> None:
        """A parameter's gradient of this backward is complete."""
        record = parameter._geminid
        with _DISABLED():
            gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            return
        if gradient.requires_grad:
            raise Refused(f"the gradient of '{record.name}' has a gradient itself (create_graph=True), which is not "
                          "supported with a prepared model")
        if gradient.layout is not torch.strided:
            raise Refused(f"the gradient of '{record.name}' is {gradient.layout}; make its embedding with sparse=False")
        self.backward()
        self._add_gradient(record, gradient.contiguous())

    def _add_gradient(self, record: Record, gradient: torch.Tensor) -> None:
        try:
            self.engine.add_gradient(record.id, gradient.data_ptr(), gradient.nbytes, record.data_type, self.place.stream())
        except FailedPrecondition as problem:
            if "backward_uses" not in str(problem):
                raise
            raise Refused(f"'{record.name}' was given a gradient twice in one backward pass: its module is called several times, "
                          "each in a checkpoint whose backward pass is one of its own. Write torch.utils.checkpoint.checkpoint("
                          "..., use_reentrant=False), with which PyTorch adds these gradients up first; drop those of this step "
                          "by optimizer.zero_grad()") from None
        if not record.has_gradient:
            record.has_gradient = True
            self.gradients.there += 1
        self.has_gradient = True

    # --- steps -----------------------------------------------------------------------------------

    def between_steps(self) -> None:
        self.recover()
        self.release_outside()

    def at_rest(self, what: str) -> None:
        """For what the engine allows between steps alone; `what`: its name. A forward whose backward has not begun does not
        count: it gathers again what it needs."""
        self.between_steps()
        if self.has_gradient:
            raise Refused(f"{what} is for between steps, and the engine has gradients of a step that is not done; call "
                          "optimizer.step() or optimizer.zero_grad() first")
        if self.micro_batch_open and not self.has_gradient:
            self.engine.cancel_micro_batch()
            self.micro_batch_open = False

    def check_closed(self, what: str) -> None:
        """Within geminid.torch.full parameters have values that the engine does not know yet."""
        if self.full_blocks:
            raise Refused(f"{what} is inside `with geminid.torch.full(...):`, at whose end the engine gets the values that its "
                          "block has changed. Leave the block first")

    def _end_gradients(self) -> None:
        """The engine has none any more."""
        self.has_gradient, self.micro_batch_open, self.norm_is_known = False, False, False
        self.clipping, self.gradient_scale = None, 1.0

    def _cancel_engine(self) -> None:
        self.between_steps()
        if self.has_gradient:
            self.engine.cancel_micro_batch()
            self._end_gradients()

    def cancel(self) -> None:
        self._cancel_engine()
        if self.gradients.there:
            for record in self.records:
                record.has_gradient = False
        self.gradients.clear()

    def zero_grad(self, set_to_none: bool) -> None:
        """What an optimizer's does. Gradients of zeros, which move parameters with momentum, come with the next step."""
        zeros = set() if set_to_none else {record for record in self.records if self.gradients.are_of(record)}
        self.cancel()
        self.gradients.zeros = zeros

    def drop_gradient(self, record: Record) -> None:
        """What parameter.grad = None means. Once all are dropped it is what zero_grad() means."""
        had = record.has_gradient
        self.gradients.drop(record)
        if had and not self.gradients.there and not self.depth and not in_backward():
            self.cancel()

    def settle_gradients(self) -> None:
        """Before a step or a norm. Raises Refused where the engine has other gradients than PyTorch would have."""
        if not self.gradients.there:
            self.cancel()  # all were dropped within a forward or backward pass
        self.gradients.check()
        self._add_zeros()

    def _add_zeros(self) -> None:
        """Of parameters that have no other gradient in this step, in the same order on all ranks."""
        missing = sorted((record for record in self.gradients.zeros if not record.has_gradient), key=lambda record: record.id)
        if missing and not self.has_gradient:
            self.begin_micro_batch()
        for record in missing:
            shape, data_type = self.engine.parameters[record.id].shape, _TYPES[record.data_type]
            self._add_gradient(record, torch.zeros(shape, dtype=data_type, device=self.place.device))

    def gradient_norm(self) -> float:
        """Of the gradients as they were before anybody multiplied them, as far as that is known."""
        self.between_steps()
        norm = self.engine.gradient_norm() / self.gradient_scale
        self.micro_batch_open, self.norm_is_known = False, True
        return norm

    def clip(self, max_norm: float) -> float:
        """Returns the norm before: of gradients that were clipped already in this step, that of the clipped ones."""
        norm = self.gradient_norm()
        if self.clipping is None:
            self.clipping = max_norm, norm, self.gradient_scale
            return norm
        before = self._clip_coefficient()
        coefficient = min(1.0, max_norm / (before * norm + CLIP_EPSILON))
        if coefficient < 1 and math.isfinite(norm):
            self.clipping = before * coefficient * (norm + CLIP_EPSILON), norm, self.gradient_scale
        return before * norm

    def _clip_coefficient(self) -> float:
        assert self.clipping is not None
        max_norm, norm, _ = self.clipping
        return min(1.0, max_norm / (norm + CLIP_EPSILON))

    def _clip_norm(self) -> float | None:
        """For the engine, which clips gradients that are divided by their scale, and does not clip where it is given 0. Where
        they were clipped before anybody knew of the scale, the coefficient is that of the multiplied ones, as in torch."""
        if self.clipping is None:
            return None
        max_norm, norm, scale = self.clipping
        if scale != self.gradient_scale:
            max_norm = self._clip_coefficient() * (norm * scale / self.gradient_scale + CLIP_EPSILON)
        return max(max_norm, _LEAST_NORM)

    def step(self, groups: Sequence[Mapping[str, float]]) -> Any:
        self.check_closed("optimizer.step()")
        self.between_steps()
        result = self.engine.step(groups, self._clip_norm(), self.gradient_scale)
        self._end_step()
        if self.torch_memory is not None:
            self.torch_memory.peaks.end_step()
        if self.holding is not None and self.holding.handed is not None:
            self.holding.handed.stepped()
        return result

    def _end_step(self) -> None:
        self._end_gradients()
        self.used_outside.clear()
        self.gradients.spent = True

    # --- a process that has taken over from another ----------------------------------------------

    def replay_step(self) -> None:
        """One that the process before has made."""
        self._cancel_engine()
        self._end_step()

    def resumed_step(self) -> int | None:
        """After which step of the processes before it goes on; None: it began anew."""
        handed = None if self.holding is None else self.holding.handed
        return handed.step if handed is not None and handed.world else self.engine.resumed()

    def check_loading(self) -> None:
        """Values that are loaded now would be in place of what the process before has left."""
        if self.resumed_step() is not None and (self.run is None or self.run.replays):
            raise Refused(f"this process goes on after step {self.resumed_step()} with the weights that the process "
                          "before it left in memory; load values only `if not run.resumed` (geminid.torch.resume)")

    def loaded(self) -> None:
        if self.run is not None:
            self.run.step = self.engine.committed
