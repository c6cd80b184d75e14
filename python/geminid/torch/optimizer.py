"""The optimizer that prepare returns. It has torch's interface and makes the engine's step."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from geminid.errors import Refused
from geminid.torch import optimizer_state
from geminid.torch.additions import Additions
from geminid.torch.keeper import Keeper
from geminid.torch.optimizers import Kind, check_orthogonal, check_unset, fixed_options, name_of, step_input

_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
          "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")
_DISABLED = torch._C.DisableTorchFunctionSubclass


class Optimizer(torch.optim.Optimizer):
    """Shares the groups of the optimizer given to prepare, so that schedulers of either optimizer change both."""

    _state: Any

    def __init__(self, original: torch.optim.Optimizer, kind: Kind, keeper: Keeper, additions: Additions) -> None:
        self._geminid_ready = False
        super().__init__(original.param_groups, original.defaults)
        self._geminid_ready = True
        self._keeper, self._kind, self._name, self._additions = keeper, kind, name_of(original), additions
        self._original = weakref.ref(original)
        for name in _HOOKS:  # both optimizers share the dictionaries of hooks
            if hasattr(original, name):
                setattr(self, name, getattr(original, name))
        self._fixed = fixed_options(kind, self.param_groups[0])
        self._parameters = [p for group in self.param_groups for p in group["params"]]
        self._members = self._groups_now()

    @property
    def state(self) -> Any:
        return self._state

    @state.setter
    def state(self, given: Any) -> None:
        if self._geminid_ready and given is not self._state:
            raise Refused("the optimizer's state is the engine's, and cannot be replaced. Write state = optimizer.state_dict(), "
                          "change what is in it, and optimizer.load_state_dict(state)")
        self._state = given

    def _groups_now(self) -> list[list[int]]:
        return [[id(p) for p in group["params"]] for group in self.param_groups]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Commits the gradients since the last step. Without gradients the step changes nothing, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._additions.check()
        keeper = self._keeper
        keeper.settle_gradients()
        if not keeper.has_gradient:
            keeper.between_steps()
            return loss
        if self._groups_now() != self._members:
            raise Refused("param_groups have other parameters than in geminid.torch.prepare, which gave the engine each parameter's "
                          "group. Leave each in its group and its place; to leave some out of a step, call requires_grad_(False) on "
                          "them before its forward pass")
        for group in self.param_groups:
            check_unset(self._kind, group, self._name)
            fixed = fixed_options(self._kind, group)
            if fixed != self._fixed:
                moves = fixed.get("momentum") != self._fixed.get("momentum")
                raise Refused(f"{self._name} was prepared with {self._fixed}, and a group has {fixed} now; these cannot "
                              "change from step to step" + (". For OneCycleLR and CyclicLR write cycle_momentum=False"
                                                            if moves else ""))
            check_orthogonal(self._kind, group)
        self._commit()
        original = self._original()
        if original is not None:
            setattr(original, "_opt_called", True)  # schedulers of the original optimizer read this
        with _DISABLED():  # autograd then reports a later backward that saved an old weight
            for parameter in self._parameters:
                torch.autograd.graph.increment_version(parameter)
        return loss

    def _commit(self) -> None:
        keeper, run = self._keeper, self._keeper.run
        if keeper.holding is not None and run is None:
            raise Refused("the model was prepared with resume=...; call geminid.torch.resume(model, ...) after prepare "
                          "and before the first step")
        if run is not None and run.replays_step():
            keeper.replay_step()
            return
        try:
            keeper.step([step_input(self._kind, group) for group in self.param_groups])
        finally:
            if run is not None:
                run.step = keeper.engine.committed

    def _unscale(self, inv_scale: torch.Tensor, found_inf: torch.Tensor) -> dict[torch.device, torch.Tensor]:
        """Does the unscaling of torch.amp.GradScaler and returns its result. Every rank returns the result of all ranks."""
        keeper = self._keeper
        keeper.settle_gradients()
        if not keeper.has_gradient:
            return {}
        norm = keeper.gradient_norm()
        keeper.gradient_scale = 1 / float(inv_scale)
        finite = math.isfinite(norm)  # the norm of finite fp32 numbers is finite
        if keeper.run is not None:
            finite = keeper.run.replays_unscale(finite)
        return {found_inf.device: torch.full_like(found_inf, 0.0 if finite else 1.0)}

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._keeper.zero_grad(set_to_none)

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """As torch.nn.utils.clip_grad_norm_ for all parameters. Returns the norm before clipping."""
        keeper = self._keeper
        keeper.settle_gradients()
        if not keeper.has_gradient:
            return torch.tensor(0.0, device=keeper.place.device)
        return torch.tensor(keeper.clip(float(max_norm)), dtype=torch.float32, device=keeper.place.device)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self._geminid_ready:
            raise Refused("a group cannot be added after prepare: give all parameters to the optimizer before it")
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        state = optimizer_state.read(self._keeper, self._kind, self.param_groups)
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, state)
            state = state if changed is None else changed
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        optimizer_state.write(self._keeper, self._kind, self.param_groups, state_dict)
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def __reduce__(self) -> NoReturn:
        raise Refused("a prepared optimizer cannot be copied or pickled; save optimizer.state_dict()")

    def __getstate__(self) -> NoReturn:
        self.__reduce__()

    def __repr__(self) -> str:
        return f"geminid.torch of {self._name}"
