"""clock_test.py PROGRAMS STEPPING_CLOCK

Runs launcher, hosts, ranks, daemon and engine with a wall clock that steps an hour forth and an hour
back with every reading (stepping_clock.cc).
"""

import math
import socket
import subprocess

import runs


def numbers_of(value):
    """Every number in a report."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for element in value:
            yield from numbers_of(element)
    elif isinstance(value, (int, float)):
        yield value


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
