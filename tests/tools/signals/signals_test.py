"""signals_test.py PROGRAMS STEPPING_CLOCK

Sends geminid-train every signal that requests an end, in every phase of a run. Checks how soon
the run ends, its exit code, and what it saves.
"""

import os
import pathlib
import signal
import stat

import runs

WISHES = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
EVERY = WISHES + WARNINGS
MANY = "65536"  # so many micro-batches that no test waits for the end of a step


class Signals(runs.Runs):
    def ranks_of(self, process):
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        lines = {child: pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
                 for child in children.split()}
        return {line.split(b"\0")[0].decode(): int(child) for child, line in lines.items()}

    def test_while_it_starts_there_is_nothing_to_save(self):
        daemon = self.folder / "daemon"  # a fake daemon that never becomes ready
        daemon.write_text(f"#!/bin/sh\ntouch {self.folder}/asked\nexec sleep 60\n")
        daemon.chmod(daemon.stat().st_mode | stat.S_IXUSR)
        for number in EVERY:
            process = self.start("--steps", runs.FOREVER, "--save", self.save, start_new_session=True,
                                 environment={"GEMINID_DAEMON": str(daemon)})
            asked = self.folder / "asked"
            self.await_that(asked.exists, process, "start of its daemon")
            process.send_signal(number)
            self.assertEqual(self.code_of(process), 128 + number, self.said)
            self.assertIn(f"{number.name} before there was anything to save", self.said)
            os.killpg(process.pid, signal.SIGKILL)  # the fake daemon
            asked.unlink()

    def test_between_micro_batches_the_step_is_given_up(self):
        for number in EVERY:
            process = self.start("--steps", runs.FOREVER, "--accumulate", MANY, "--save",
                                 self.save, "--report", self.report)
            self.await_word(process, "activations ")
            process.send_signal(number)
            self.assertEqual(self.code_of(process), 128 + number, self.said)
            self.assertIn(f"stopped at step 0 of {runs.FOREVER} by {number.name}", self.said)
            self.assertEqual(self.read_report()["ended_by"], number.name)
            self.assertEqual(self.saved(), [])  # no step was made

    def test_in_the_middle_of_a_validation_the_run_saves_and_ends(self):
        for number in EVERY:
            save = self.save = self.folder / number.name
            process = self.start("--steps", runs.FOREVER, "--validation", "0.4", "--validation-every",
                                 "1", "--validation-batches", MANY, "--save", save, "--report",
                                 self.report, "--save-every", "1")
            # The due checkpoint is written before the validation, which does not end.
            self.await_that(self.saved, process, "checkpoint")
            process.send_signal(number)
            self.assertEqual(self.code_of(process), 128 + number, self.said)
            self.assertEqual(self.saved(), ["step-000000001"])
            report = self.read_report()
            self.assertEqual((report["steps_done"], report["validation"]), (1, []))

    def test_while_it_trains_and_saves_every_step(self):
        for number in EVERY:
            save = self.save = self.folder / number.name
            process = self.start("--steps", runs.FOREVER, "--save", save, "--save-every", "1",
                                 "--report", self.report)
            self.await_that(self.saved, process, "checkpoint")
            process.send_signal(number)
            self.assertEqual(self.code_of(process), 128 + number, self.said)
            done = self.read_report()["steps_done"]
            self.assertEqual(self.saved()[-1], f"step-{done:09}")

    def test_to_one_of_two_ranks_it_is_for_both(self):
        arguments = ["--steps", runs.FOREVER, "--ranks", "2", "--accumulate", MANY, "--save",
                     self.save]
        for number in (signal.SIGTERM, signal.SIGUSR1):
            process = self.start(*arguments)
            self.await_word(process, "activations ")
            os.kill(self.ranks_of(process)["geminid-train: rank 1"], number)
            self.assertEqual(self.code_of(process), 128 + number, self.said)

    def test_to_the_launcher_it_is_for_all(self):
        process = self.start("--steps", runs.FOREVER, "--ranks", "2", "--save", self.save)
        self.await_word(process, "step 1/")
        process.send_signal(signal.SIGUSR2)
        self.assertEqual(self.code_of(process), 128 + signal.SIGUSR2, self.said)
        self.assertEqual(len(self.saved()), 1)

    # Slurm does so at a job's time limit, and systemd with KillMode=control-group.
    def test_to_every_process_of_the_job_the_run_still_saves(self):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            for ranks in ("1", "2"):
                save = self.save = self.folder / f"{number.name}-{ranks}"
                process = self.start("--steps", runs.FOREVER, "--ranks", ranks, "--save", save,
                                     "--restarts", "1")
                self.await_word(process, "step 1/")
                job = [process.pid, *runs.descendants_of(process.pid)]
                self.assertGreater(len(job), 3)  # the daemon, geminid-holder and the ranks
                for member in job:
                    os.kill(member, number)
                self.assertEqual(self.code_of(process), 128 + number, self.said)
                self.assertEqual(len(self.saved()), 1, self.said)

    def test_hangups_are_nothing_to_a_run_that_nohup_started(self):
        def ignored():
            runs.usual_signals()
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for ranks in ("1", "2"):
            save = self.save = self.folder / ranks
            process = self.start("--steps", runs.FOREVER, "--ranks", ranks, "--save", save,
                                 "--save-every", "1", before=ignored)
            self.await_that(self.saved, process, "checkpoint")
            process.send_signal(signal.SIGHUP)
            newest = self.saved()[-1]
            self.await_that(lambda: self.saved()[-1] > newest, process, "later checkpoint")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.code_of(process), 128 + signal.SIGTERM, self.said)


if __name__ == "__main__":
    runs.main()
