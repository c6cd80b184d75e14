"""limits_test.py PROGRAMS STEPPING_CLOCK FEW_THREADS

Runs geminid-train with few descriptors, few threads, and the environment variables of batch systems.
"""

import resource

import runs


class Limits(runs.Runs):
    def test_few_descriptors_are_said_in_one_line_with_the_remedy(self):
        for descriptors in (8, 16, 32):
            def few():
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
            process = self.start("--steps", "1", before=few)
            self.assertEqual(self.code_of(process), 7, self.said)
            self.assertEqual(self.said.count("\n"), 1, self.said)
            self.assertIn(f"may have {descriptors} descriptors", self.said)
            self.assertIn("ulimit -n", self.said)

    def test_a_low_soft_limit_is_raised(self):
        def low():
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (16, hard))
        process = self.start("--steps", "1", before=low)
        self.assertEqual(self.code_of(process), 0, self.said)

    def test_a_thread_that_cannot_be_started_ends_the_run_with_words(self):
        for threads in range(100):
            few = {"LD_PRELOAD": runs.FEW_THREADS, "FEW_THREADS": str(threads)}
            process = self.start("--steps", "2", "--save", self.folder / f"save-{threads}",
                                 "--save-every", "1", environment=few)
            code = self.code_of(process)
            if code == 0:
                break
            self.assertIn(code, range(1, 64), f"{threads} threads: {self.said}")
            self.assertIn("thread", self.said, f"{threads} threads")
        self.assertGreater(threads, 5)
        self.assertEqual(code, 0, self.said)

    def test_in_an_allocation_of_slurm_without_srun_it_starts_its_own_ranks(self):
        allocation = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "1"}
        script = {**allocation, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
        for environment, ranks in ((allocation, "1"), (script, "2")):
            process = self.start("--steps", "1", "--ranks", ranks, environment=environment)
            self.assertEqual(self.code_of(process), 0, self.said)
            self.assertIn(f"{ranks} rank", self.said)

    def test_advice_names_no_flag_that_was_given(self):
        rank = {"SLURM_STEP_ID": "0", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0",
                "SLURM_STEP_NUM_NODES": "1"}
        process = self.start("--steps", "1", "--ranks", "4", environment=rank)
        self.assertEqual(self.code_of(process), 2, self.said)
        self.assertNotIn("with --ranks", self.said)


if __name__ == "__main__":
    runs.main()
