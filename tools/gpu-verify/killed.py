"""Measures the GPU memory of daemon and agent, and the memory that is not freed after a process of a run was killed."""

import os
import signal
import subprocess
import time

import gpu_memory

MIB = 1 << 20
START_SECONDS = 30  # until a daemon serves, and a run begins its steps
BACK_SECONDS = 20   # until memory is freed
END_SECONDS = 10
CONTEXT_BYTES = 1 << 30  # more than the context of any GPU needs (G19)
ENDLESS = 1_000_000  # steps


def kill_group(process):
    """Kills a process and its process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Failed(OSError):
    pass


class Service:
    """A context with a new daemon and perhaps a run on it. Both end with the context."""

    def __init__(self, machine, name):
        self._machine = machine
        self.socket = machine.scratch / f"{name}.sock"
        self._log = machine.scratch / f"{name}.log"
        self._started = []
        self.daemon = None
        self.run = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self._started):
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + END_SECONDS
        for process in reversed(self._started):
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            kill_group(process)

    def _start(self, command):
        with self._log.with_suffix(f".{len(self._started)}").open("w") as log:
            process = subprocess.Popen([str(word) for word in command], env=self._machine.environment, stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        self._started.append(process)
        return process

    def start_daemon(self):
        self.daemon = self._start([self._machine.programs / "geminid", "--socket", self.socket, "--device", "cuda",
                                   "--host-memory", "1GiB"])
        self._await("the daemon did not serve", lambda: self.socket.exists() and self.agent())

    def start_run(self, memory):
        steps = self._machine.scratch / f"{self.socket.stem}.steps"
        self.run = self._start(self._machine.train_command(self._machine.sizes["killed"], "--socket", self.socket,
                                                           "--device-memory", memory, "--steps", ENDLESS, "--log", steps))
        self._await("the run did not begin", lambda: steps.exists() and steps.read_text().count("\n") > 1)

    def _await(self, words, condition):
        ended = lambda: [one for one in self._started if one.poll() is not None]  # noqa: E731
        if not gpu_memory.await_true(lambda: condition() or ended(), START_SECONDS) or ended():
            said = " ".join(log.read_text() for log in sorted(self._machine.scratch.glob(f"{self.socket.stem}.log.*")))
            raise Failed(f"{words} within {START_SECONDS} s: {' '.join(said.split())[-300:]}")

    def agent(self):
        found = gpu_memory.descendants(self.daemon.pid, "geminid-agent")
        return found[0] if found else None

    def rank(self):
        found = gpu_memory.descendants(self.run.pid, "geminid-train")
        return found[-1] if found else self.run.pid


def beside_arenas(machine, memory):
    """Returns the GPU memory that a daemon and agents use without an arena."""
    before = machine.gpu.used_bytes()
    with Service(machine, "idle") as service:
        service.start_daemon()
        time.sleep(1)  # an agent allocates its memory at once
        taken = machine.gpu.used_bytes() - before
        service.start_run(memory)
        listed = machine.gpu.bytes_by_pid()
        with_contexts = [name for name, pid in (("daemon", service.daemon.pid), ("agent", service.agent())) if pid in listed]
    note = "NVML lists no context of daemon or agent beside a run's" if not with_contexts else \
        f"NVML lists a context of: {', '.join(with_contexts)}"
    if 0 < taken <= CONTEXT_BYTES:
        note += "; a context's size"
    return {"value": max(0, taken) / MIB, "verdict": "yes" if taken <= CONTEXT_BYTES else "no", "note": note}


def left_after(machine, memory, victim):
    """Returns the bytes that are not freed after the victim's SIGKILL and the ordinary end of the others."""
    with Service(machine, victim) as service:
        before = machine.gpu.used_bytes()
        service.start_daemon()
        idle = machine.gpu.used_bytes()
        service.start_run(memory)
        during = machine.gpu.used_bytes()
        if during - idle < memory // 2:
            raise Failed(f"a run with {memory >> 20} MiB takes {(during - idle) >> 20} MiB by NVML")
        pid = {"rank": service.rank, "agent": service.agent, "daemon": lambda: service.daemon.pid}[victim]()
        os.kill(pid, signal.SIGKILL)
        if victim == "rank":  # the daemon continues, and frees the arena
            return machine.gpu.await_used(idle, BACK_SECONDS) - idle
    return machine.gpu.await_used(before, BACK_SECONDS) - before


def after_kills(machine, memory):
    left = {victim: max(0, left_after(machine, memory, victim)) / MIB for victim in ("rank", "agent", "daemon")}
    note = ", ".join(f"after the {name}'s death {mib:.0f} MiB" for name, mib in left.items())
    return {"value": max(left.values()), "note": note}
