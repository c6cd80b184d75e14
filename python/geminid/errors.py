"""What goes wrong, by the canonical codes of gRPC and Abseil."""


class GeminidError(Exception):
    """A call that failed. ``is_final``: the engine has failed with it, and every later call on it
    fails alike; otherwise the call was refused, nothing has changed, and the engine goes on."""

    code = "UNKNOWN"

    def __init__(self, message, is_final=False):
        super().__init__(message)
        self.is_final = is_final


class Cancelled(GeminidError):
    code = "CANCELLED"


class InvalidArgument(GeminidError, ValueError):
    code = "INVALID_ARGUMENT"


class DeadlineExceeded(GeminidError, TimeoutError):
    code = "DEADLINE_EXCEEDED"


class NotFound(GeminidError):
    code = "NOT_FOUND"


class AlreadyExists(GeminidError):
    code = "ALREADY_EXISTS"


class PermissionDenied(GeminidError):
    code = "PERMISSION_DENIED"


class ResourceExhausted(GeminidError, MemoryError):
    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(GeminidError):
    code = "FAILED_PRECONDITION"


class Aborted(GeminidError):
    code = "ABORTED"


class OutOfRange(GeminidError):
    code = "OUT_OF_RANGE"


class Unimplemented(GeminidError, NotImplementedError):
    code = "UNIMPLEMENTED"


class Internal(GeminidError):
    code = "INTERNAL"


class Unavailable(GeminidError, ConnectionError):
    code = "UNAVAILABLE"


class DataLoss(GeminidError):
    code = "DATA_LOSS"


class Unauthenticated(GeminidError):
    code = "UNAUTHENTICATED"


class Refused(FailedPrecondition):
    """Something that could not be done right with a prepared model. The message says what to do
    instead; nothing has changed."""


class LibraryNotFound(NotFound, ImportError):
    """There is no libgeminid_c where it is looked for."""


#: By the number of the code.
BY_CODE = (None, Cancelled, GeminidError, InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists,
           PermissionDenied, ResourceExhausted, FailedPrecondition, Aborted, OutOfRange, Unimplemented,
           Internal, Unavailable, DataLoss, Unauthenticated)
