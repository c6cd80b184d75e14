"""Which parameters have a gradient for the script. The engine has the values, and drops those of a step only together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminid.errors import Refused

if TYPE_CHECKING:
    from geminid.torch.parameter import Record


class Gradients:
    """Of one prepared model."""

    __slots__ = ("there", "dropped")

    def __init__(self) -> None:
        self.there = 0  # records with has_gradient
        self.dropped: str | None = None  # a parameter whose gradient the script has dropped and the engine has

    def drop(self, record: Record) -> None:
        """By parameter.grad = None, as zero_grad() of a module does for each parameter."""
        record.has_gradient = False
        self.there -= 1
        self.dropped = record.name

    def clear(self) -> None:
        self.there, self.dropped = 0, None

    def check(self) -> None:
        """Before a step or a norm."""
        if self.dropped is not None:
            raise Refused(
                f"the script has dropped the gradient of '{self.dropped}' (parameter.grad = None, or zero_grad() of a part of the "
                f"model) and not those of {self.there} others; the engine drops the gradients of a step only together. Call "
                "optimizer.zero_grad(). To leave parameters out of a step, call requires_grad_(False) on them before its "
                "forward pass, and requires_grad_(True) after the step")
