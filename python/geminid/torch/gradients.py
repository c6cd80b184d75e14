"""Records which parameters have a gradient from the script's view. The engine has the values. It drops a step's gradients
only all together, and after a step it has none. PyTorch's gradients stay until zero_grad()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminid.errors import Refused

if TYPE_CHECKING:
    from geminid.torch.parameter import Record


class Gradients:
    """The gradients of one prepared model."""

    __slots__ = ("there", "dropped", "spent", "zeros")

    def __init__(self) -> None:
        self.there = 0  # the number of records with has_gradient
        self.dropped: str | None = None  # a parameter whose gradient the script dropped but the engine still has
        self.spent = False  # a step used the gradients, and no zero_grad() followed
        self.zeros: set[Record] = set()  # parameters that zero_grad(set_to_none=False) left with a gradient of zeros

    def are_of(self, record: Record) -> bool:
        return record.has_gradient or record in self.zeros

    def drop(self, record: Record) -> None:
        """Handles parameter.grad = None. A module's zero_grad() does so for each parameter."""
        self.zeros.discard(record)
        if record.has_gradient:
            record.has_gradient = False
            self.there -= 1
            self.dropped = record.name

    def clear(self) -> None:
        """Forgets all gradients except `zeros`."""
        self.there, self.dropped, self.spent = 0, None, False

    def check(self) -> None:
        """Call it before a step or a norm. Raises Refused for gradients that differ from PyTorch's."""
        if self.spent:
            raise Refused(
                "optimizer.step() has used the gradients, and PyTorch would use them once more, beside those that came since; "
                "the engine keeps none after a step. Call optimizer.zero_grad() between optimizer.step() and the next "
                "backward(), and compute norms before optimizer.step()")
        if self.dropped is not None:
            raise Refused(
                f"the script has dropped the gradient of '{self.dropped}' (parameter.grad = None, or zero_grad() of a part of the "
                f"model) and not those of {self.there} others; the engine drops the gradients of a step only together. Call "
                "optimizer.zero_grad(). To leave parameters out of a step, call requires_grad_(False) on them before its "
                "forward pass, and requires_grad_(True) after the step")
