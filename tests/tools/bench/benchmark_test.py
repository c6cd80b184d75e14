"""benchmark_test.py [TOOL FOLDER]: tests tools/benchmark with fake benchmarks. A failure is named, the next benchmark
runs, and no source is forgotten. The arguments name the tested files, so that a change to them selects this test."""

import json
import os
import pathlib
import select
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOOL = ROOT / "tools/benchmark"
PATIENCE_SECONDS = 30
del sys.argv[1:3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools/bench"))

import catalogue  # noqa: E402
import results  # noqa: E402

HEAD = f"#!{sys.executable}\nimport json, os, signal, sys\n"
# Writes a report in the form of Google Benchmark.
REPORT = HEAD + """
out = next(word.split("=", 1)[1] for word in sys.argv if word.startswith("--benchmark_out="))
with open(out, "w") as file:
    json.dump({"benchmarks": ROWS}, file)
"""


def row(**figures):
    return {"name": "BM_It", "run_type": "iteration", "real_time": 1.5, "time_unit": "ns", **figures}


def report(*rows):
    return REPORT.replace("ROWS", repr(list(rows)))


class Benchmark(unittest.TestCase):
    def run_tool(self, programs, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in programs.items():
                path = pathlib.Path(folder) / name
                path.write_text(text)
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
            return subprocess.run([sys.executable, TOOL, "--smallest", "--bin", folder, *arguments, *programs],
                                  capture_output=True, text=True)

    def test_all_that_run_and_print_their_figures_are_well(self):
        done = self.run_tool({"arena_bench": report(row()), "addresses_bench": report(row())})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_one_that_dies_is_named_with_its_signal_and_the_next_goes_on(self):
        dies = HEAD + "print('BM_One 3 ns', flush=True)\nprint('it rains', file=sys.stderr, flush=True)\nos.abort()\n"
        done = self.run_tool({"arena_bench": dies, "addresses_bench": HEAD + "print('BM_Two 4 ns')\nsys.exit(7)\n",
                              "client_bench": HEAD + "print('it shines')\n"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("arena_bench failed: ended by signal 6 (SIGABRT)\n", done.stderr)
        self.assertRegex(done.stderr, r"(?s)SIGABRT\)\n    .*it rains")
        self.assertIn("addresses_bench failed: exit code 7\n    BM_Two 4 ns\n", done.stderr)
        self.assertIn("it shines", done.stdout)
        self.assertIn("3 of 3 failed:\n    arena_bench: ended by signal 6 (SIGABRT)\n    addresses_bench: exit code 7\n",
                      done.stderr)

    def test_a_figure_that_is_not_there_or_no_number_above_0_fails(self):
        for figures in ({"real_time": 0.0}, {"real_time": float("inf")}, {"real_time": float("nan")}, {"real_time": None}):
            text = report({**row(), **figures}).replace("inf,", "float('inf'),").replace("nan,", "float('nan'),")
            done = self.run_tool({"arena_bench": text})
            self.assertEqual(done.returncode, 1, figures)
            self.assertIn("arena_bench failed: it did not print its figures\n    BM_It real_time is", done.stderr)
        done = self.run_tool({"collectives_bench": report(row())})
        self.assertIn("BM_It bytes_per_second is missing", done.stderr)
        self.assertEqual(done.returncode, 1)

    def test_a_benchmark_that_reports_an_error_or_nothing_fails(self):
        done = self.run_tool({"arena_bench": report(row(error_occurred=True, error_message="refused"))})
        self.assertEqual((done.returncode, "BM_It: refused" in done.stderr), (1, True))
        done = self.run_tool({"arena_bench": report()})
        self.assertEqual((done.returncode, "no benchmark ran" in done.stderr), (1, True))

    def test_a_program_that_is_not_there_fails_with_what_to_build(self):
        done = self.run_tool({}, "arena_bench")
        self.assertEqual(done.returncode, 1)
        self.assertIn("build it: tools/build dev arena_bench", done.stderr)

    def test_what_the_machine_lacks_is_no_failure_and_is_told_apart(self):
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, TOOL, "--smallest", "--bin", folder, "collectives-over-hosts"]
            done = subprocess.run(words, capture_output=True, text=True, env={"GEMINID_TESTS_WITHOUT_NAMESPACES": "1"})
        self.assertEqual(done.returncode, 77)
        self.assertIn("cannot run here", done.stderr)

    def test_a_table_is_printed_with_date_processor_and_commit(self):
        rows = [{**row(), "name": name, "cpu_time": 2.0}
                for name in ("BM_LeaseWords", *(f"BM_FreeAndPlace/GiB:{gib}" for gib in (1, 64, 2048, 16384)))]
        done = self.run_tool({"arena_bench": report(*rows)}, "--tables")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"Taken by `tools/benchmark arena_bench` on 20\d\d-\d\d-\d\d, \d+ processors of .*, commit ")
        self.assertIn("| acquire and release of the words of a resident chunk | 2.0 ns |", done.stdout)

    def test_a_table_that_cannot_be_made_is_a_failure(self):
        done = self.run_tool({"arena_bench": report(row())}, "--tables")
        self.assertEqual(done.returncode, 1)
        self.assertIn("arena_bench failed: its table cannot be made: ", done.stderr)

    def test_a_run_that_is_ended_takes_its_benchmark_with_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "arena_bench")
            path.write_text("#!/bin/sh\nsleep 1000 &\necho $! begun\nwait\n")
            path.chmod(0o755)
            run = subprocess.Popen([sys.executable, TOOL, "--smallest", "--bin", folder, "arena_bench"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            pid = next(line.split()[0] for line in run.stdout if "begun" in line)
            with open(os.pidfd_open(int(pid)), "rb") as process:
                run.terminate()
                run.communicate()
                self.assertEqual(run.returncode, 143)
                # The kernel may take a moment to end a killed process.
                self.assertTrue(select.select([process], [], [], PATIENCE_SECONDS)[0], "it lives")

    def test_wrong_usage_is_2(self):
        self.assertEqual(self.run_tool({}, "no_such_bench").returncode, 2)


class Results(unittest.TestCase):
    def test_figures_are_wanted_of_every_row_that_fits(self):
        rows = {"a/1": {"x": 1.0}, "a/2": {"y": 1.0}, "b": {}}
        self.assertEqual(list(results.missing(rows, [("a/.*", ["x"])])), ["a/2 x is missing"])
        self.assertEqual(list(results.missing(rows, [("c", ["x"])])), ["no row fits c"])
        self.assertEqual(list(results.missing({"": {"x": "one"}}, [("", ["x"])])), ["x is one, no finite number above 0"])

    def test_rows_of_repetitions_are_their_medians(self):
        repeated = [{"name": f"BM_It_{what}", "run_name": "BM_It", "run_type": "aggregate", "aggregate_name": what, "real_time": time,
                     "time_unit": "ms"}
                    for what, time in (("mean", 4.0), ("median", 3.0))]
        self.assertEqual(results.google_rows(json.dumps({"benchmarks": repeated})), {"BM_It": {"real_time": 3.0, "time_unit": "ms"}})

    def test_json_and_text_become_rows(self):
        self.assertEqual(results.json_rows('{"a": 1, "b": [{"c": 2, "d": "e"}]}'), {"": {"a": 1.0}, "b/0": {"c": 2.0, "d": "e"}})
        self.assertEqual(results.text_rows("x 1 y\nx 2 y", r"x (?P<n>\d) (?P<y>y)"),
                         {"0": {"n": 1.0, "y": "y"}, "1": {"n": 2.0, "y": "y"}})
        with self.assertRaises(results.Unreadable):
            results.text_rows("nothing", r"x (?P<n>\d)")


class Catalogue(unittest.TestCase):
    def test_every_program_script_and_example_runs(self):
        self.assertEqual(catalogue.unlisted(), [])

    def test_a_new_benchmark_or_example_joins_and_anything_else_is_missed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {"tools/bench/new_bench.cc": "BENCHMARK_MAIN();\n", "tools/bench/new_tool.cc": "int main() {}\n",
                     "tools/bench/new-script": "#!/bin/sh\n", "tools/bench/part.cc": "int x;\n",
                     "client/examples/new_example.cc": "int main() {}\n", "tools/bench/beside-pytorch": "#!/bin/sh\n"}
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            self.assertEqual(catalogue.unlisted(root), ["tools/bench/new-script", "tools/bench/new_tool.cc"])
            self.assertLessEqual({"new_bench", "new_example"}, catalogue.entries(root).keys())


if __name__ == "__main__":
    unittest.main()
