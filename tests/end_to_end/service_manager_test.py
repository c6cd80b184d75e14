"""service_manager_test.py GEMINID GEMINID_TRAIN

Restarts the daemon of a service manager (service_manager.py) under a training job of two ranks, in turn
with SIGTERM, like `systemctl restart`, and with SIGKILL: while the ranks train, and while they still
allocate. Under another job it kills ranks. Each disturbed job ends by SIGINT, and its weights must equal
those of an undisturbed job of as many steps. Each daemon must have the plans of the previous daemon. A
returned rank may have no more records than a new rank. At the end no record may be left.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from service_manager import OF_THE_DAEMON, Manager, die_with_this_process, until

PAUSE_SECONDS = 0.1
SIGNALS = [signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL]
SOONEST = [0, 0.05, 0.1, 0.2]  # in turn
RANK_KILLS = 3
STEPS_AFTERWARDS = 10
# A record that each client of a session has.
A_PLAN = re.compile(r"(s\d+)-plan\d+")
OF_A_CLIENT = re.compile(r"s\d+-(books|state|client|daemon-event|client-event|socket)\b")


# The instruction sets that the tests may use.
LEVEL = {name: value for name, value in os.environ.items() if name == "GEMINID_MAX_ISA"}


class Job:
    """Two ranks that train in a new folder."""

    def __init__(self, program, folder, manager, *flags, steps=1_000_000):
        folder.mkdir()
        self.program = program
        self.manager = manager
        self.report = folder / "report.json"
        self.log = folder / "log"
        self.words_file = folder / "words"
        text = folder / "text"
        text.write_text("".join(f"line {i} of the text\n" for i in range(4000)))
        with open(self.words_file, "w") as written:
            self.process = subprocess.Popen(
                [program, "--text", text, "--socket", manager.daemon_socket, "--progress", "lines",
                 "--model", "gpt2-tiny", "--ranks", "2", "--batch", "4", "--steps", str(steps),
                 "--device-memory", "1500KiB", "--threads", "1", "--report", self.report,
                 "--weights-hash", "always", "--log", self.log, *flags],
                stderr=written, env={"TMPDIR": str(folder), **LEVEL},
                preexec_fn=die_with_this_process)

    def words(self):
        return self.words_file.read_text()

    def until(self, condition):
        until(lambda: self.manager.listen() or condition() or self.process.poll() is not None)

    def must_run(self):
        if self.process.poll() is not None:
            sys.exit(f"the job ended before it was disturbed:\n{self.words()}")

    def a_rank(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return next(int(child) for child in children.read_text().split()
                    if os.path.samefile(f"/proc/{child}/exe", self.program))

    def steps(self):
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def finish(self):
        """Ends the job after some more steps. Returns the number of its steps and their result."""
        enough = self.steps() + STEPS_AFTERWARDS
        self.until(lambda: self.steps() >= enough)
        self.must_run()
        self.process.send_signal(signal.SIGINT)
        return self.result(128 + signal.SIGINT)

    def result(self, code=0):
        """Waits for an end with this code. Returns the job's steps and the hash of its weights."""
        self.until(lambda: False)
        if self.process.returncode != code:
            sys.exit(f"the job ended with {self.process.returncode} and not {code}:\n{self.words()}")
        report = json.loads(self.report.read_text())
        return report["steps_done"], report["weights_sha256"]


def restart_under(job, pauses, after=lambda: None):
    """Restarts the daemon with each of SIGNALS, each time after a pause."""
    for number, pause in zip(SIGNALS, pauses):
        job.must_run()
        time.sleep(pause)
        job.manager.stop(number)
        job.manager.start()
        after()


def disturb_at_the_start(job):
    job.until(lambda: len(of_clients(job.manager)) == 2 * 6)  # no client waits for a daemon that never existed
    restart_under(job, SOONEST)
    return job.finish()


def disturb(job):
    job.until(lambda: "step 1/" in job.words() and len(planned(job.manager)) == 2)
    restart_under(job, [PAUSE_SECONDS] * len(SIGNALS), lambda: must_be_planned(job))
    return job.finish()


def planned(manager):
    """Returns the sessions whose plans are stored."""
    return {found.group(1) for found in map(A_PLAN.fullmatch, manager.names()) if found}


def must_be_planned(job):
    """Asserts that the restarted daemon has the plan of each rank."""
    metrics = job.manager.page("/metrics")
    page = job.manager.page("/plan/" + min(planned(job.manager), default="s0").removeprefix("s"))
    job.must_run()
    if metrics.count("\ngeminid_plan_transfer_bytes{") != 2:
        sys.exit(f"a restarted daemon does not have the plans of both ranks:\n{metrics}")
    if "<svg" not in page:
        sys.exit(f"a restarted daemon does not show the plan of a rank:\n{page}")


def kill_ranks(job):
    """Kills ranks. A rank's session must have no more records than that of the first client, which has one of each kind."""
    job.until(lambda: "step 1/" in job.words())
    for kill in range(1, RANK_KILLS + 1):
        job.must_run()
        os.kill(job.a_rank(), signal.SIGKILL)
        job.until(lambda: f"start {kill + 1}: goes on" in job.words())
        until(lambda: job.manager.listen() or len(of_clients(job.manager)) == 2 * 6)
    return job.finish()


def of_clients(manager):
    return [name for name in manager.names() if OF_A_CLIENT.match(name)]


def main():
    daemon, trainer = (os.path.abspath(path) for path in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="geminid-manager-") as name:
        folder = pathlib.Path(name)
        manager = Manager(daemon, folder)
        manager.start()
        try:
            disturbed = [
                disturb(Job(trainer, folder / "disturbed", manager)),
                disturb_at_the_start(Job(trainer, folder / "at-the-start", manager)),
                kill_ranks(Job(trainer, folder / "ranks", manager, "--restarts", "10"))]
            calm = [Job(trainer, folder / f"calm-{steps}", manager, steps=steps).result()
                    for steps in sorted({steps for steps, _ in disturbed})]
            until(lambda: manager.listen() or manager.names() == OF_THE_DAEMON)
        finally:
            manager.stop(signal.SIGTERM)
        holder = (folder / "geminid.sock.holder").exists()
    if holder:
        sys.exit("a holder was started, though systemd keeps the descriptors")
    for steps, weights in disturbed:
        if weights != dict(calm)[steps]:
            sys.exit(f"the weights after {steps} steps are not those of the job that was left alone")


if __name__ == "__main__":
    main()
