"""streams_test.py PROGRAMS STEPPING_CLOCK

Closes the other ends of the programs' standard streams.
"""

import os
import signal
import subprocess

import runs


class Streams(runs.Runs):
    def test_without_a_reader_a_run_saves_and_ends_with_its_code(self):
        for ranks in ("1", "2"):
            save = self.save = self.folder / ranks
            process = self.start("--steps", runs.FOREVER, "--ranks", ranks, "--save", save,
                                 "--save-every", "1")
            self.await_that(self.saved, process, "checkpoint")
            process.stderr.close()
            process.stderr = None
            process.send_signal(signal.SIGINT)
            self.assertEqual(self.code_of(process), 128 + signal.SIGINT)
            self.assertTrue(self.saved())

    # Such a reader is a pager that waits for a key.
    def test_a_reader_that_sleeps_stops_neither_the_run_nor_its_end(self):
        for ranks in ("1", "2"):
            save = self.save = self.folder / ranks
            reads, writes = os.pipe()
            os.set_blocking(writes, False)
            try:
                while True:
                    os.write(writes, b"x" * 4096)
            except BlockingIOError:
                os.set_blocking(writes, True)
            process = self.start("--steps", runs.FOREVER, "--ranks", ranks, "--save", save,
                                 "--save-every", "1", stderr=writes)
            os.close(writes)
            self.addCleanup(os.close, reads)
            self.await_that(self.saved, process, "checkpoint")
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.code_of(process), 128 + signal.SIGTERM)

    def test_closed_or_full_streams_change_no_run(self):
        full = os.open("/dev/full", os.O_WRONLY)
        self.addCleanup(os.close, full)

        def without(*closed):
            def before():
                runs.usual_signals()
                for descriptor in closed:
                    os.close(descriptor)
            return before
        cases = {"input": without(0), "output": without(1), "error": without(2),
                 "all": without(0, 1, 2), "full": runs.usual_signals}
        for name, before in cases.items():
            save = self.save = self.folder / name
            stream = full if name == "full" else subprocess.DEVNULL
            ranks = "2" if name in ("all", "full") else "1"
            process = self.start("--steps", "2", "--ranks", ranks, "--save", save, before=before,
                                 stdout=stream, stderr=stream)
            self.assertEqual(self.code_of(process), 0, name)
            self.assertEqual(self.saved(), ["step-000000002"], name)

    def test_a_reader_that_has_enough_is_no_failure(self):
        plan = [runs.PROGRAMS / "geminictl", "plan", "--help"]
        for command in (plan, [runs.PROGRAMS / "geminid-train", "--help"]):
            reads, writes = os.pipe()
            os.close(reads)
            ran = subprocess.run([str(word) for word in command], stdout=writes,
                                 stderr=subprocess.PIPE, preexec_fn=runs.usual_signals, check=False)
            os.close(writes)
            self.assertEqual((ran.returncode, ran.stderr), (0, b""), command)


if __name__ == "__main__":
    runs.main()
