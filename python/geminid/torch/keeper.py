"""Decides which parameters are on the device and for how long: the operations of a model's calls."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from geminid import engine as engine_
from geminid.errors import FailedPrecondition, GeminidError, Refused, ResourceExhausted
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
_TYPES = {engine_.FLOAT32: torch.float32, engine_.BFLOAT16: torch.bfloat16}  # the types of gradients
CLIP_EPSILON = 1e-6  # the same in torch and in the engine
_LEAST_NORM = math.ulp(0.0)  # above 0, but its coefficient rounds to 0 in fp32
_DISABLED = torch._C.DisableTorchFunctionSubclass


def add_advice(problem: BaseException, did: str) -> None:
    """Adds to an error of ranks that make different calls what this rank did, and what a script has to do."""
    if "ranks disagree" in str(problem):
        problem.args = (f"{problem}. This rank {did}. The script must call the same modules in the same order on all ranks, and "
                        "so it must state_dict(), geminid.torch.save, evaluation, clip_grad_norm_ and optimizer.step(). "
                        "Ranks also need equally many batches: give the DataLoader a DistributedSampler, or drop_last=True",
                        *problem.args[1:])


def in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != _NOT_IN_BACKWARD)


class Held:
    """Parameters on the device, and the engine operation that holds them there, if there is one."""

    __slots__ = ("operation", "records")

    def __init__(self, operation: int | None, records: Sequence[Record]) -> None:
        self.operation, self.records = operation, records


class Call:
    """One call of a unit. It holds the parameters in its forward, and again in its backward from the first gradient of
    an output to the first gradient of an input. Autograd computes gradients of inputs after all nodes of the
    call."""

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
    """One backward pass of autograd's engine. Reentrant checkpoints nest backward passes."""

    __slots__ = ("id", "calls")

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.calls: list[Call] = []


class Keeper:
    """The open operations of a prepared model, and the state of its micro-batch."""

    optimizer: weakref.ref[Optimizer]

    def __init__(self, engine: engine_.Engine, records: Sequence[Record], units: Sequence[Unit], place: Place,
                 granularity: str, session: Session, ranks: Ranks) -> None:
        self.engine, self.records, self.units, self.place = engine, records, units, place
        self.granularity, self.session, self.ranks = granularity, session, ranks
        self.holding: Holding | None = None  # for geminid.torch.resume
        self.run: Run | None = None
        self.torch_memory: TorchMemory | None = None  # set on a GPU
        self.activations: SavedTensors | None = None  # set if activations are offloaded
        self.micro_batch_open = False
        self.has_gradient = False  # the engine has a gradient of this step
        self.norm_is_known = False  # from then on the engine takes no more gradients of the step
        self.gradients = Gradients()
        self.clipping: tuple[float, float, float] | None = None  # (largest norm, norm, gradient_scale) at the call of clip
        self.gradient_scale = 1.0  # the factor that the step's gradients were multiplied by
        self.depth = 0  # calls of the root module whose forward runs
        self.changing = False  # an interrupt while this is set may leave unknown open operations
        self.tasks: dict[int, Task] = {}
        self.turn = Turn([unit.module for unit in units])
        self.full_blocks = 0  # open blocks of geminid.torch.full
        self.open_calls: list[Call] = []  # calls of units whose forward runs with gradients enabled
        self.outside: dict[Record, Held] = {}  # parameters used outside of their module, by record
        self.used_outside: set[Record] = set()  # parameters used so since the last step
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
        try:
            held = Held(self.place.bring(self.engine, pass_, ids, records), records)
        except GeminidError as problem:
            add_advice(problem, f"gathered '{records[0].name}'")
            raise
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
        """Runs before a call of the model or of a unit. Raises Refused if another thread is in such a call."""
        if in_backward():
            return  # the forward of a checkpoint, on any thread
        self.turn.enter(bool(self.tasks))
        if is_model:
            try:
                self.recover()
            except Refused:
                self.turn.refuse_me()
                raise

    def recover(self) -> None:
        """Closes all that an exception left open without running the hooks, such as KeyboardInterrupt."""
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
        """Holds a parameter on the device until the backward pass that uses it has ended, or the forward around the use.
        has_graph: autograd records the use."""
        wants_backward = torch.is_grad_enabled() and record.trained
        if in_backward():
            if not torch.is_grad_enabled():  # a hook, or the backward of a torch.autograd.Function
                self.backward()
        elif not self.depth and (not wants_backward or not (has_graph or self._computes())):
            instead = ("; for its value in a loss, parameter.clone().detach()" if wants_backward else
                       ". In an evaluation, and in a torch.autograd.Function, read it within a call of the model")
            raise Refused(f"{function} reads '{record.name}', which is not on the device now. "
                          "Between steps, read and change it in `with geminid.torch.full(module):`, or take "
                          f"model.state_dict(){instead}")
        try:
            self.hold_outside(record)
        except ResourceExhausted as problem:
            smaller = ", or prepare with unit='leaf', if it is a block whose methods are called and not the block" if (
                self.granularity == "block") else ""
            raise ResourceExhausted(
                f"{problem}. {function} uses '{record.name}' outside of its module, where it stays on the device until the "
                f"backward pass, as {len(self.outside)} others do. To read values between steps, take model.state_dict() or "
                f"`with geminid.torch.full(module):`. In a forward pass, give device_memory more{smaller}", problem.is_final) from None
        if wants_backward:
            self.used_outside.add(record)

    def _computes(self) -> bool:
        """Returns whether a module's forward or a backward pass runs."""
        return in_backward() or any(unit.stack for unit in self.units)

    def hold_outside(self, record: Record) -> None:
        if record not in self.outside:
            self.outside[record] = self.hold_one(record)

    def hold_to_read(self, record: Record) -> Held:
        """For a copy of its values. Where there is no room, what was used outside of its module leaves: a backward pass brings it
        again."""
        is_between = not self.depth and not self._computes()
        if self.changing and is_between:
            self.recover()  # after a forward that had no room
        try:
            return self.hold_one(record)
        except ResourceExhausted:
            if not self.outside or not is_between:
                raise
            self.changing = False  # nothing was brought
            self.release_outside()
            return self.hold_one(record)

    def release_outside(self) -> None:
        while self.outside:
            _, held = self.outside.popitem()
            self.release(held)

    def begin_backward_at(self, result: Any) -> None:
        """Registers the backward pass of a function that used such a parameter: this pass needs the parameter, too."""
        tensor: Any
        for tensor in tensors_in(result):
            if tensor.requires_grad and not tensor.is_leaf:
                tensor.register_hook(self.on_output)

    # --- backward --------------------------------------------------------------------------------

    def on_output(self, _gradient: torch.Tensor) -> None:
        self.backward()

    def backward(self) -> Task:
        """Returns the backward pass that runs now."""
        id_ = torch._C._current_graph_task_id()
        task = self.tasks.get(id_)
        if task is None:
            self.check_closed("a backward pass")
            self.turn.check_caller()
            if torch.is_grad_enabled() and torch._C._functorch.peek_interpreter_stack() is not None:
                raise Refused("torch.func.grad, jacrev and vjp make a backward pass whose gradients have gradients, and it would "
                              "read weights that have left the device. Use torch.autograd.grad or torch.autograd.functional, "
                              "which work, or another copy of the model that has loaded model.state_dict()")
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
        """Takes a parameter's gradient, which is complete for this backward pass."""
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
        had, record_had = self.has_gradient, record.has_gradient
        if not record_had:
            self.gradients.there += 1
        record.has_gradient = self.has_gradient = True  # before: Python raises KeyboardInterrupt as the call returns
        try:
            self.engine.add_gradient(record.id, gradient.data_ptr(), gradient.nbytes, record.data_type, self.place.stream())
        except GeminidError as problem:
            self.has_gradient, record.has_gradient = had, record_had
            if not record_had:
                self.gradients.there -= 1
            add_advice(problem, f"added the gradient of '{record.name}'")
            if not isinstance(problem, FailedPrecondition) or "backward_uses" not in str(problem):
                raise
            raise Refused(f"'{record.name}' was given a gradient twice in one backward pass: its module is called several times, "
                          "each in a checkpoint whose backward pass is one of its own. Write torch.utils.checkpoint.checkpoint("
                          "..., use_reentrant=False), with which PyTorch adds these gradients up first; drop those of this step "
                          "by optimizer.zero_grad()") from None

    # --- steps -----------------------------------------------------------------------------------

    def between_steps(self) -> None:
        self.recover()
        self.release_outside()

    def at_rest(self, what: str) -> None:
        """Call it before an action that the engine allows only between steps. what: the action's name. A forward whose backward
        has not begun does not count as a step: its backward gathers the weights again."""
        self.between_steps()
        if self.has_gradient:
            raise Refused(f"{what} works only between steps, and the engine has gradients of a step that is not done; call "
                          "optimizer.step() or optimizer.zero_grad() first")
        if self.micro_batch_open and not self.has_gradient:
            self.engine.cancel_micro_batch()
            self.micro_batch_open = False

    def check_closed(self, what: str) -> None:
        """Raises Refused within geminid.torch.full: the engine does not have the parameters' changed values yet."""
        if self.full_blocks:
            raise Refused(f"{what} is inside `with geminid.torch.full(...):`, at whose end the engine gets the values that its "
                          "block has changed. Leave the block first")

    def _end_gradients(self) -> None:
        """Resets the state of a step's gradients: the engine has no gradients any more."""
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
        """As an optimizer's zero_grad. The next step adds gradients of zeros, because these move parameters with momentum."""
        zeros = set() if set_to_none else {record for record in self.records if self.gradients.are_of(record)}
        self.cancel()
        self.gradients.zeros = zeros

    def drop_gradient(self, record: Record) -> None:
        """Handles parameter.grad = None. When all gradients are dropped, this equals zero_grad()."""
        had = record.has_gradient
        self.gradients.drop(record)
        if had and not self.gradients.there and not self.depth and not in_backward():
            self.cancel()

    def settle_gradients(self) -> None:
        """Call it before a step or a norm. Raises Refused if the engine's gradients differ from PyTorch's."""
        if not self.gradients.there:
            self.cancel()  # the script dropped all within a forward or backward pass
        self.gradients.check()
        self._add_zeros()

    def _add_zeros(self) -> None:
        """Adds gradients of zeros for parameters without another gradient in this step, in the same order on all ranks."""
        missing = sorted((record for record in self.gradients.zeros if not record.has_gradient), key=lambda record: record.id)
        if missing and not self.has_gradient:
            self.begin_micro_batch()
        for record in missing:
            shape, data_type = self.engine.parameters[record.id].shape, _TYPES[record.data_type]
            self._add_gradient(record, torch.zeros(shape, dtype=data_type, device=self.place.device))

    def gradient_norm(self) -> float:
        """Returns the norm of the gradients divided by `gradient_scale`, so before the script multiplied them."""
        self.between_steps()
        try:
            norm = self.engine.gradient_norm() / self.gradient_scale
        except GeminidError as problem:
            add_advice(problem, "computed the norm of the gradients")
            raise
        self.micro_batch_open, self.norm_is_known = False, True
        return norm

    def clip(self, max_norm: float) -> float:
        """Clips and returns the norm before. If this step clipped the gradients already, the norm is of the clipped ones."""
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
        """Returns the norm limit for the engine. The engine clips gradients divided by their scale, and 0 means no clipping. If
        the script clipped before the scale was known, the coefficient is that of the scaled gradients, as in torch."""
        if self.clipping is None:
            return None
        max_norm, norm, scale = self.clipping
        if scale != self.gradient_scale:
            max_norm = self._clip_coefficient() * (norm * scale / self.gradient_scale + CLIP_EPSILON)
        return max(max_norm, _LEAST_NORM)

    def step(self, groups: Sequence[Mapping[str, float]]) -> Any:
        self.check_closed("optimizer.step()")
        self.between_steps()
        before = self.engine.committed
        try:
            result = self.engine.step(groups, self._clip_norm(), self.gradient_scale)
        except BaseException as problem:
            if self.engine.committed != before:  # Python raised KeyboardInterrupt as the call returned
                self._stepped()
            add_advice(problem, "was in optimizer.step()")
            raise
        self._stepped()
        return result

    def _stepped(self) -> None:
        self._end_step()
        if self.torch_memory is not None:
            self.torch_memory.peaks.end_step()
        if self.holding is not None and self.holding.handed is not None:
            self.holding.handed.stepped()

    def _end_step(self) -> None:
        self._end_gradients()
        self.used_outside.clear()
        self.gradients.spent = True

    # --- a process that has taken over from another ----------------------------------------------

    def replay_step(self) -> None:
        """Skips a step that the previous process has committed."""
        self._cancel_engine()
        self._end_step()

    def resumed_step(self) -> int | None:
        """Returns the step after which this process resumes. None: it starts anew."""
        handed = None if self.holding is None else self.holding.handed
        return handed.step if handed is not None and handed.world else self.engine.resumed()

    def check_loading(self) -> None:
        """Raises Refused if loaded values would overwrite the weights that the previous process left."""
        if self.resumed_step() is not None and (self.run is None or self.run.replays):
            raise Refused(f"this process goes on after step {self.resumed_step()} with the weights that the process "
                          "before it left in memory; load values only `if not run.resumed` (geminid.torch.resume)")

    def loaded(self) -> None:
        if self.run is not None:
            self.run.step = self.engine.committed
