"""Reads the used memory of a GPU by NVML, without a CUDA context of its own. Also finds the descendants of processes."""

import ctypes
import os
import pathlib
import time

LIBRARY = "libnvidia-ml.so.1"
VARIABLE = "GEMINID_LIBNVML"  # the same variable as for the programs
MOST_PROCESSES = 256
UNKNOWN_BYTES = 2**64 - 1
POLL_SECONDS = 0.05


class Unavailable(Exception):
    pass


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


class Gpu:
    """CUDA's GPU 0, also if CUDA_VISIBLE_DEVICES is a number or a UUID."""

    def __init__(self):
        try:
            self._nvml = ctypes.CDLL(os.environ.get(VARIABLE) or LIBRARY)
        except OSError as error:
            raise Unavailable(f"no NVML: {error}") from error
        self._handle = ctypes.c_void_p()
        self._must("nvmlInit_v2")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
        if visible.startswith(("GPU-", "MIG-")):
            self._must("nvmlDeviceGetHandleByUUID", visible.encode(), ctypes.byref(self._handle))
        else:
            index = int(visible) if visible.isdigit() else 0
            self._must("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(self._handle))

    def _must(self, name, *arguments):
        result = getattr(self._nvml, name)(*arguments)
        if result != 0:
            raise Unavailable(f"{name}: error {result}")

    def name(self):
        text = ctypes.create_string_buffer(96)
        self._must("nvmlDeviceGetName", self._handle, text, ctypes.c_uint(len(text)))
        return text.value.decode()

    def _memory(self):
        memory = _Memory()
        self._must("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(memory))
        return memory

    def used_bytes(self):
        return self._memory().used

    def total_bytes(self):
        return self._memory().total

    def bytes_by_pid(self):
        """Returns the bytes of compute processes, as far as NVML shows them; None if it does not know."""
        count, processes = ctypes.c_uint(MOST_PROCESSES), (_Process * MOST_PROCESSES)()
        self._must("nvmlDeviceGetComputeRunningProcesses_v3", self._handle, ctypes.byref(count), processes)
        return {one.pid: None if one.used == UNKNOWN_BYTES else one.used for one in processes[:count.value]}

    def await_used(self, most_bytes, seconds):
        """Polls until at most `most_bytes` are used, or the time is over. Returns the last answer."""
        end = time.monotonic() + seconds
        used = self.used_bytes()
        while used > most_bytes and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
            used = self.used_bytes()
        return used


def await_true(condition, seconds):
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            return None
        time.sleep(POLL_SECONDS)
    return found


def descendants(pid, name):
    """Returns the live descendants of a process with that name, parents before their children."""
    children = {}
    names = {}
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            head, _, rest = (folder / "stat").read_text().rpartition(")")
        except OSError:
            continue  # the process has just ended
        state, parent = rest.split()[:2]
        if state in "ZX":
            continue
        one = int(folder.name)
        names[one] = head.split("(", 1)[1]
        children.setdefault(int(parent), []).append(one)
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(0), [])
        left += below
        found += [one for one in below if names[one].startswith(name[:15])]
    return found
