"""clock_test.py PROGRAMS STEPPING_CLOCK

Runs launcher, hosts, ranks, daemon and engine with a wall clock that jumps an hour forward or back at
every reading, and with a clock that stays an hour behind or ahead (stepping_clock.cc).
"""

import contextlib
import math
import os
import pathlib
import signal
import socket
import subprocess

import runs


def numbers_of(value):
    """Returns every number in a report."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for element in value:
            yield from numbers_of(element)
    elif isinstance(value, (int, float)):
        yield value


HOUR = 3600
# Threads in which gRPC waits for its timers. If the clock is behind the kernel's clock, such waits end at once.
WAITING_THREADS = ("grpc_global_tim", "timer_manager", "nexting_thread")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def seconds_of_threads(pids):
    """Returns the CPU time of all threads of the processes, and of the threads that wait for gRPC's timers."""
    everything = waiting = 0
    for pid in pids:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                seconds = (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
                everything += seconds
                waiting += seconds if (task / "comm").read_text().strip() in WAITING_THREADS else 0
    return everything, waiting


class LastingSteps(runs.Runs):
    """The wall clock of a run stays an hour behind, then an hour ahead, and comes back."""

    def setUp(self):
        super().setUp()
        self.offset = self.folder / "offset"
        self.offset.write_bytes(bytes(8))
        self.log = self.folder / "log"
        self.steps = {"LD_PRELOAD": runs.STEPPING_CLOCK, "STEPPING_CLOCK_OFFSET": str(self.offset)}

    def set_clock(self, seconds):
        with self.offset.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    def await_steps(self, process, count):
        """Waits until the run has trained `count` more steps."""
        def lines():
            return self.log.read_bytes().count(b"\n") if self.log.exists() else 0

        end = lines() + count
        self.await_that(lambda: lines() >= end, process, f"{count} more steps")

    def train_through_steps(self, process, others=()):
        self.await_steps(process, 5)
        for offset in (-HOUR, HOUR, -HOUR, 0):
            self.set_clock(offset)
            self.await_steps(process, 40)
        pids = [process.pid, *runs.descendants_of(process.pid), *others]
        everything, waiting = seconds_of_threads(pids)
        self.assertLess(waiting, everything / 10, "gRPC's timers do not rest")
        self.set_clock(-HOUR)  # the run ends with this clock
        process.terminate()
        self.assertEqual(self.code_of(process), 128 + signal.SIGTERM, self.said)

    def test_the_clock_of_this_test_does_step(self):
        said = []
        for offset in (0, -HOUR):
            self.set_clock(offset)
            date = subprocess.run(["date", "+%s", "--date=now"],
                                  env={**self.environment, **self.steps},
                                  capture_output=True, text=True, check=True)
            said.append(int(date.stdout))
        self.assertAlmostEqual(said[0] - said[1], HOUR, delta=600)

    def test_hosts_train_on(self):
        shell = self.folder / "shell"
        shell.write_text('#!/bin/sh\nshift\nexec sh -c "$1"\n')
        shell.chmod(0o755)
        hosts = self.folder / "hosts"
        # Two names of this machine, if it has an address.
        addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True)
        names = [socket.gethostname(), *addresses.stdout.split()[:1]]
        hosts.write_text("".join(f"{name} slots={2 // len(names)}\n" for name in names))
        process = self.start("--hosts", hosts, "--remote-shell", shell, "--steps", runs.FOREVER,
                             "--log", self.log, environment=self.steps)
        self.train_through_steps(process)

    def test_a_daemon_serves_its_clients(self):
        socket_path = self.folder / "geminid.sock"
        environment = {**self.environment, **self.steps, "GEMINID_SOCKET": str(socket_path)}
        daemon = subprocess.Popen(
            [runs.PROGRAMS / "geminid", "--socket", socket_path, "--host-memory", "256MiB",
             "--device-memory", "64MiB", "--metrics-listen", "off", "--log-level", "error"],
            env=environment, stderr=subprocess.PIPE)
        self.addCleanup(self.end, daemon)
        self.await_word(daemon, "ready")
        self.usual = self.usual[:self.usual.index("--host-memory")]
        process = self.start("--steps", runs.FOREVER, "--device-memory", "32MiB", "--log", self.log,
                             environment=environment)
        self.await_steps(process, 1)
        for offset in (-HOUR, HOUR, 0):
            self.set_clock(offset)
            for words in (["status"], ["wait", "daemon"], ["ls", "jobs"]):
                ran = subprocess.run([runs.PROGRAMS / "geminictl", *words], env=environment,
                                     capture_output=True, text=True, check=False)
                self.assertEqual(ran.returncode, 0, (words, ran.stderr))
        self.train_through_steps(process, others=[daemon.pid])


class Clock(runs.Runs):
    def setUp(self):
        super().setUp()
        self.steps = {"LD_PRELOAD": runs.STEPPING_CLOCK}

    def check_times(self):
        report = self.read_report()
        times = {key: value for key, value in report.items() if "seconds" in key}
        self.assertIn("stall_seconds_by_cause", times)
        for key, value in times.items():
            for seconds in numbers_of(value):
                self.assertTrue(math.isfinite(seconds) and 0 <= seconds < 600, (key, value))

    def test_the_clock_of_this_test_does_step(self):
        said = subprocess.run(["date", "+%s", "--date=now"], env={**self.environment, **self.steps},
                              capture_output=True, text=True, check=True).stdout
        real = subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True).stdout
        self.assertGreater(abs(int(said) - int(real)), 3000)

    def test_ranks_of_one_host_train_and_their_times_are_right(self):
        for ranks in ("1", "2"):
            process = self.start("--steps", "5", "--ranks", ranks, "--report", self.report, "--save",
                                 self.folder / ranks, environment=self.steps)
            self.assertEqual(self.code_of(process), 0, self.said)
            self.check_times()

    def test_hosts_are_not_taken_for_lost(self):
        hosts = self.folder / "hosts"
        hosts.write_text(f"{socket.gethostname()} slots=2\n")
        process = self.start("--hosts", hosts, "--steps", "5", "--report", self.report,
                             environment=self.steps)
        self.assertEqual(self.code_of(process), 0, self.said)
        self.check_times()

    def test_a_daemon_and_its_clients_wait_as_long_as_they_say(self):
        socket_path = self.folder / "geminid.sock"
        environment = {**self.environment, **self.steps, "GEMINID_SOCKET": str(socket_path)}
        daemon = subprocess.Popen(
            [runs.PROGRAMS / "geminid", "--socket", socket_path, "--host-memory", "256MiB",
             "--device-memory", "64MiB", "--metrics-listen", "off", "--log-level", "error"],
            env=environment, stderr=subprocess.PIPE)
        self.addCleanup(self.end, daemon)
        self.await_word(daemon, "ready")
        for words in (["status"], ["wait", "daemon"], ["ls", "jobs"]):
            ran = subprocess.run([runs.PROGRAMS / "geminictl", *words], env=environment,
                                 capture_output=True, text=True, check=False)
            self.assertEqual(ran.returncode, 0, (words, ran.stderr))
        self.usual = self.usual[:self.usual.index("--host-memory")]
        process = self.start("--steps", "3", "--device-memory", "64MiB", environment=environment)
        self.assertEqual(self.code_of(process), 0, self.said)


if __name__ == "__main__":
    runs.main()
