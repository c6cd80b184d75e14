#!/usr/bin/env python3
"""test_command_test.py SCRIPT: tests what tools/test builds and passes to ctest, with fakes for all programs that it calls."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SAY = '#!/bin/sh\necho "{name}" "$@"\n'
CTEST = """#!/bin/sh
echo ctest "$@" "isa=$GEMINID_MAX_ISA" "long=$GEMINID_TESTS_LONG"
mkdir -p build/dev/Testing/Temporary
printf '3:Suite.Two\\n' > build/dev/Testing/Temporary/LastTestsFailed.log
exit "${CTEST_STATUS:-0}"
"""
REACHED = """import os, sys
if os.environ["REACHED"] == "none built": sys.exit(3)
if os.environ["REACHED"] == "error": sys.exit("git knows no 'x' to compare with")
programs, entries = os.environ["REACHED"].split("|")
print(programs if sys.argv[1] == "programs" else entries)
print(*sys.argv[3:], file=sys.stderr)
"""


class TestCommand(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("tools/install-packages", "tools/build", "tools/tidy", "bin/cmake"):
            self.program(name, SAY.format(name=name))
        self.program("bin/ctest", CTEST)
        self.program("tools/cmake/reached_tests.py", REACHED)
        shutil.copy(SCRIPT, self.root / "tools" / "test")
        shutil.copy(pathlib.Path(SCRIPT).parent / "cmake" / "processors.py", self.root / "tools" / "cmake")
        (self.root / "build" / "dev").mkdir(parents=True)

    def program(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run_test(self, *arguments, **environment):
        """Returns the printed lines; self.status has the exit status."""
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GEMINID_")}
        done = subprocess.run([self.root / "tools" / "test", *arguments], capture_output=True, text=True,
                              env={**clean, "PATH": path, **environment})
        self.status = done.returncode
        return done.stdout.splitlines() + done.stderr.splitlines()

    def test_without_arguments_everything_is_built_and_run(self):
        lines = self.run_test()
        self.assertEqual(self.status, 0)
        self.assertIn("tools/build dev", lines)
        self.assertTrue(any(line.startswith("ctest --preset dev") and line.endswith("isa= long=")
                            for line in lines), lines)

    def test_arguments_go_to_ctest(self):
        self.assertTrue(any("-R Layout isa=" in line for line in self.run_test("-R", "Layout")))

    def test_processors_are_given_out_but_not_in_the_long_form(self):
        self.assertTrue(any("--resource-spec-file" in line for line in self.run_test()))
        given = json.loads((self.root / "build" / "dev" / "processors.json").read_text())
        ids = [int(processor["id"]) for processor in given["local"][0]["processors"]]
        self.assertEqual(ids, sorted(os.sched_getaffinity(0)))
        self.assertFalse(any("--resource-spec-file" in line for line in self.run_test("--long")))

    def test_level_and_long_form_are_said_to_the_tests(self):
        self.assertTrue(any("isa=avx2 long=1" in line for line in self.run_test("--isa", "avx2", "--long")))

    def test_unknown_level_is_refused_before_anything_is_done(self):
        for wrong in (["--isa", "avx3"], ["--isa"]):
            with self.subTest(wrong):
                lines = self.run_test(*wrong)
                self.assertEqual(self.status, 2)
                self.assertEqual(len(lines), 1)
                self.assertIn("avx512_bf16", lines[0])

    def test_change_builds_and_runs_what_it_reaches(self):
        lines = self.run_test("--changed", "v1", "--long", REACHED="bin/a bin/b|4,7")
        builds = [line for line in lines if line.startswith("tools/build")]
        self.assertEqual(builds, ["tools/build --configured dev bin/a bin/b"])
        self.assertIn("v1", lines)
        self.assertTrue(any("-I 0,0,0,4,7 isa= long=1" in line for line in lines), lines)

    def test_change_is_configured_once(self):
        self.program("bin/cmake", '#!/bin/sh\necho "$@" >> cmake-calls\n')
        for name in ("build", "cmake/progress"):
            shutil.copy(pathlib.Path(SCRIPT).parent / name, self.root / "tools" / name)
        for reached in ("bin/a|4", "none built"):
            with self.subTest(reached):
                (self.root / "cmake-calls").unlink(missing_ok=True)
                self.run_test("--changed", REACHED=reached)
                self.assertEqual(self.status, 0)
                calls = (self.root / "cmake-calls").read_text().splitlines()
                self.assertEqual(calls[0], "--preset dev")
                self.assertEqual(len(calls), 2)
                self.assertTrue(calls[1].startswith("--build --preset dev"), calls)

    def test_change_that_reaches_nothing_runs_nothing(self):
        lines = self.run_test("--changed", REACHED="|")
        self.assertEqual(self.status, 0)
        self.assertFalse(any(line.startswith("ctest") for line in lines), lines)

    def test_change_without_a_build_builds_and_runs_everything(self):
        lines = self.run_test("--changed", REACHED="none built")
        self.assertIn("tools/build --configured dev", lines)
        self.assertTrue(any(line.startswith("ctest") for line in lines), lines)

    def test_change_since_what_git_does_not_know_is_an_error(self):
        lines = self.run_test("--changed", "x", REACHED="error")
        self.assertNotEqual(self.status, 0)
        self.assertFalse(any(line.startswith("ctest") for line in lines), lines)

    def test_failed_entry_comes_with_the_command_that_runs_it_again(self):
        lines = self.run_test("--isa", "sse2", CTEST_STATUS="8")
        self.assertEqual(self.status, 8)
        self.assertIn("  tools/test --isa sse2 -R '^Suite.Two$'", lines)


if __name__ == "__main__":
    SCRIPT = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
