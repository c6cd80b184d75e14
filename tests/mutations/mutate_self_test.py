#!/usr/bin/env python3
"""Gives tools/mutate a toy tree whose programs are scripts, and changes of every kind."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]

SUM = """\
# Adds up to and including the last.
def total(last):
    sum = 0
    for i in range(last + 1):
        sum += i
    return sum
"""
# The test program. Like GoogleTest it prints how many tests it ran.
SUM_TEST = """\
#!/usr/bin/env python3
import sys
sys.path.insert(0, "@source@")
from sum import total
print("[==========] Running", 0 if "--gtest_filter=None.*" in sys.argv else 1, "tests from 1 test suite.")
if total(4) != 10:
    print("[  FAILED  ] Sum.OfFour_IsTen (0 ms)")
    sys.exit(1)
"""
PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(toy LANGUAGES NONE)
file(READ sum_test.py text)
string(REPLACE "@source@" "${PROJECT_SOURCE_DIR}" text "${text}")
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/sum_test.in CONTENT "${text}")
# It compiles if it is Python.
add_custom_target(sum_test
  COMMAND python3 -B -c "compile(open('${PROJECT_SOURCE_DIR}/sum.py').read(), 'error:', 'exec')"
  COMMAND install -D -m 755 sum_test.in bin/sum_test VERBATIM)
"""
PRESETS = {"version": 6, "configurePresets": [
    {"name": "dev", "generator": "Ninja", "binaryDir": "${sourceDir}/build/dev"}]}


def mutation(name, old, new, tests="sum_test"):
    return textwrap.dedent(f"""\
        [[mutation]]
        name = "{name}"
        file = "sum.py"
        old = "{old}"
        new = "{new}"
        wrong = "It is {name}."
        tests = ["{tests}"]
        """)


OFF_BY_ONE = mutation("off-by-one", "range(last + 1)", "range(last)")
HARMLESS = mutation("harmless", "sum = 0", "sum = 0 + 0")
ENDLESS = mutation("endless", "sum += i", "sum += i\\n    while True: pass")
NOT_PYTHON = mutation("not-python", "sum += i", "sum +=")
GONE = mutation("gone", "sum -= i", "sum += i")
TWICE = mutation("twice", "to", "onto")


class Mutate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        subprocess.run(["git", "init", "-q", self.root], check=True)
        for name, text in {"sum.py": SUM, "sum_test.py": SUM_TEST, "CMakeLists.txt": PROJECT,
                           ".gitignore": "build/\n", "CMakePresets.json": json.dumps(PRESETS)}.items():
            (self.root / name).write_text(text)

    def mutate(self, mutations, *arguments):
        (self.root / "tests/mutations").mkdir(parents=True, exist_ok=True)
        (self.root / "tests/mutations/toy.toml").write_text(mutations)
        return subprocess.run(
            [sys.executable, "-B", TREE / "tools/mutate", "--root", self.root, *arguments],
            capture_output=True, text=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})

    def test_wrong_change_is_noticed_by_the_test_that_fails(self):
        done = self.mutate(OFF_BY_ONE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("noticed           Sum.OfFour_IsTen", done.stdout)
        self.assertIn("1 changes: 1 noticed", done.stdout)
        self.assertEqual((self.root / "sum.py").read_text(), SUM)

    def test_harmless_change_survives_and_fails_the_command(self):
        done = self.mutate(OFF_BY_ONE + HARMLESS)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("toy.harmless    survived", done.stdout)
        self.assertIn("sum.py: It is harmless.", done.stdout)
        self.assertIn("toy.off-by-one  noticed", done.stdout)

    def test_each_change_is_undone_before_the_next(self):
        # The harmless change comes second: if the first were still in place, this run would notice it, too.
        done = self.mutate(OFF_BY_ONE + HARMLESS, "--json")
        outcomes = {result["name"]: result["outcome"] for result in json.loads(done.stdout)["results"]}
        self.assertEqual(outcomes, {"toy.off-by-one": "noticed", "toy.harmless": "survived"})
        self.assertEqual((self.root / "build/mutate/sum.py").read_text(), SUM)

    def test_hang_is_noticed(self):
        done = self.mutate(ENDLESS, "--limit", "0.5")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("sum_test hangs", done.stdout)

    def test_change_that_does_not_compile_fails_the_command(self):
        done = self.mutate(NOT_PYTHON)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("does not compile", done.stdout)

    def test_text_that_is_gone_or_there_twice_does_not_apply(self):
        for arguments in ([], ["--check"]):
            done = self.mutate(GONE + TWICE, *arguments)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("its old text occurs 0 times in sum.py", done.stdout)
            self.assertIn("its old text occurs 2 times in sum.py", done.stdout)

    def test_change_of_nothing_does_not_apply(self):
        self.assertEqual(self.mutate(mutation("same", "sum = 0", "sum = 0"), "--check").returncode, 1)
        self.assertEqual(self.mutate(OFF_BY_ONE, "--check").returncode, 0)

    def test_used_up_budget_tries_nothing_more_and_says_so(self):
        done = self.mutate(HARMLESS, "--budget", "0")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 changes: 1 not tried", done.stdout)

    def test_only_takes_those_of_the_name_and_list_shows_them(self):
        done = self.mutate(OFF_BY_ONE + HARMLESS, "--only", "toy.off*", "--list")
        self.assertIn("toy.off-by-one", done.stdout)
        self.assertNotIn("toy.harmless", done.stdout)
        self.assertEqual(self.mutate(HARMLESS, "--only", "nobody").returncode, 2)

    def test_test_that_fails_by_itself_or_runs_nothing_proves_nothing(self):
        done = self.mutate(mutation("untested", "sum = 0", "sum = 1", tests="sum_test None.*"))
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("sum_test None.* runs no test", done.stderr)
        (self.root / "sum.py").write_text(SUM.replace("last + 1", "last"))
        done = self.mutate(HARMLESS)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("fails without any change", done.stderr)

    def test_entry_without_a_reason_or_of_a_name_twice_is_refused(self):
        self.assertEqual(self.mutate(HARMLESS.replace("wrong", "right"), "--check").returncode, 2)
        self.assertEqual(self.mutate(HARMLESS + HARMLESS, "--check").returncode, 2)

    def test_file_that_is_deleted_leaves_the_copy_too(self):
        self.mutate(OFF_BY_ONE, "--budget", "0")
        (self.root / "extra.txt").write_text("new")
        self.mutate(OFF_BY_ONE, "--budget", "0")
        self.assertTrue((self.root / "build/mutate/extra.txt").exists())
        (self.root / "extra.txt").unlink()
        self.mutate(OFF_BY_ONE, "--budget", "0")
        self.assertFalse((self.root / "build/mutate/extra.txt").exists())


if __name__ == "__main__":
    unittest.main()
