"""The errors, by the canonical codes of gRPC and Abseil. ``GeminidError`` is the base class of all."""

from __future__ import annotations


class GeminidError(Exception):
    """A call failed. With ``is_final`` the engine has failed, and every later call on it fails with the same error.
    Without, the call was refused, nothing has changed, and the engine can be used."""

    code = "UNKNOWN"

    def __init__(self, message: str, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class Cancelled(GeminidError):
    """The caller cancelled the operation."""

    code = "CANCELLED"


class InvalidArgument(GeminidError, ValueError):
    """An argument is invalid in every state."""

    code = "INVALID_ARGUMENT"


class DeadlineExceeded(GeminidError, TimeoutError):
    """The daemon or another rank did not answer in time."""

    code = "DEADLINE_EXCEEDED"


class NotFound(GeminidError):
    """The file, checkpoint, device or program does not exist."""

    code = "NOT_FOUND"


class AlreadyExists(GeminidError):
    """The name is already taken."""

    code = "ALREADY_EXISTS"


class PermissionDenied(GeminidError):
    """This user has no permission for the call."""

    code = "PERMISSION_DENIED"


class ResourceExhausted(GeminidError, MemoryError):
    """The memory does not suffice. The message has the sizes and says which size suffices."""

    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(GeminidError):
    """The call is invalid in this state: another call must come first, or a version differs."""

    code = "FAILED_PRECONDITION"


class Aborted(GeminidError):
    """Another rank failed. The message names that rank."""

    code = "ABORTED"


class OutOfRange(GeminidError):
    """A position or number is out of range."""

    code = "OUT_OF_RANGE"


class Unimplemented(GeminidError, NotImplementedError):
    """The feature is unsupported."""

    code = "UNIMPLEMENTED"


class Internal(GeminidError):
    """Geminid has a bug."""

    code = "INTERNAL"


class Unavailable(GeminidError, ConnectionError):
    """No daemon answers."""

    code = "UNAVAILABLE"


class DataLoss(GeminidError):
    """A file or memory differs from the data that was written."""

    code = "DATA_LOSS"


class Unauthenticated(GeminidError):
    """The daemon cannot identify the caller."""

    code = "UNAUTHENTICATED"


class Refused(FailedPrecondition):
    """A request that would give wrong results with a prepared model is refused. The message says what to do
    instead. Nothing has changed."""


class LibraryNotFound(NotFound, ImportError):
    """The search found no libgeminid_c."""


#: The classes by the number of their code.
BY_CODE: tuple[type[GeminidError] | None, ...] = (
    None, Cancelled, GeminidError, InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists, PermissionDenied,
    ResourceExhausted, FailedPrecondition, Aborted, OutOfRange, Unimplemented, Internal, Unavailable, DataLoss,
    Unauthenticated)
