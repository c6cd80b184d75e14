"""What goes wrong, by the canonical codes of gRPC and Abseil. Catch ``GeminidError`` for all of it."""

from __future__ import annotations


class GeminidError(Exception):
    """A call that failed. ``is_final``: the engine has failed with it, and every later call on it
    fails alike; otherwise the call was refused, nothing has changed, and the engine goes on."""

    code = "UNKNOWN"

    def __init__(self, message: str, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class Cancelled(GeminidError):
    """The caller ended it."""

    code = "CANCELLED"


class InvalidArgument(GeminidError, ValueError):
    """An argument that can never be right."""

    code = "INVALID_ARGUMENT"


class DeadlineExceeded(GeminidError, TimeoutError):
    """The daemon or another rank did not answer in time."""

    code = "DEADLINE_EXCEEDED"


class NotFound(GeminidError):
    """There is no such file, checkpoint, device or program."""

    code = "NOT_FOUND"


class AlreadyExists(GeminidError):
    """Somebody has this name already."""

    code = "ALREADY_EXISTS"


class PermissionDenied(GeminidError):
    """This user may not."""

    code = "PERMISSION_DENIED"


class ResourceExhausted(GeminidError, MemoryError):
    """It does not fit; the message has the numbers, and what would do."""

    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(GeminidError):
    """Not in this state: another call must come first, or a version differs."""

    code = "FAILED_PRECONDITION"


class Aborted(GeminidError):
    """Another rank failed, which the message names."""

    code = "ABORTED"


class OutOfRange(GeminidError):
    """Beyond the end of something."""

    code = "OUT_OF_RANGE"


class Unimplemented(GeminidError, NotImplementedError):
    """Not supported here."""

    code = "UNIMPLEMENTED"


class Internal(GeminidError):
    """A defect of Geminid."""

    code = "INTERNAL"


class Unavailable(GeminidError, ConnectionError):
    """No daemon answers."""

    code = "UNAVAILABLE"


class DataLoss(GeminidError):
    """A file or memory is not what was written."""

    code = "DATA_LOSS"


class Unauthenticated(GeminidError):
    """The daemon does not know who this is."""

    code = "UNAUTHENTICATED"


class Refused(FailedPrecondition):
    """Something that could not be done right with a prepared model. The message says what to do
    instead; nothing has changed."""


class LibraryNotFound(NotFound, ImportError):
    """There is no libgeminid_c where it is looked for."""


#: By the number of the code.
BY_CODE: tuple[type[GeminidError] | None, ...] = (
    None, Cancelled, GeminidError, InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists, PermissionDenied,
    ResourceExhausted, FailedPrecondition, Aborted, OutOfRange, Unimplemented, Internal, Unavailable, DataLoss,
    Unauthenticated)
