#!/usr/bin/env python3
"""test_suites_test.py CTEST SCRIPT: gives the script programs, and checks the test entries that it makes."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

LIST = """Running main() from gtest_main.cc
Plain.
  One
  Two
Instances/Plain.
  Three/0  # GetParam() = 1
Plain/Other.
  Four
Typed/0.  # TypeParam = int
  Five
Typed/1.  # TypeParam = float
  Five
"""


class TestSuites(unittest.TestCase):
    def entries(self, program, also_at=""):
        """Returns the entries that ctest would run, by name, with the filters of their commands."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            path = folder / "some_test"
            if program is not None:
                path.write_text(program)
                path.chmod(0o755)
            (folder / "CTestTestfile.cmake").write_text(
                f'include("{SCRIPT}")\ngeminid_add_suites("{path}" {also_at} TIMEOUT 7 LABELS "slow")\n')
            done = subprocess.run([CTEST, "-N", "-V"], cwd=folder, capture_output=True, text=True)
            filters = re.findall(r'"--gtest_filter=([^"]*)"', done.stdout)
            self.levels = re.findall(r"GEMINID_MAX_ISA=(\S+)", done.stdout)
            names = re.findall(r"Test +#\d+: (\S+)", done.stdout)
            return names, filters

    def test_suite_with_all_its_instances_and_types_is_one_entry(self):
        names, filters = self.entries(f"#!/bin/sh\ncat <<'END'\n{LIST}END\n")
        self.assertEqual(names, ["some_test.Plain", "some_test.Other", "some_test.Typed"])
        self.assertEqual(len(filters), 3)

    def test_suites_that_run_at_another_level_too_are_two_entries(self):
        names, filters = self.entries(f"#!/bin/sh\ncat <<'END'\n{LIST}END\n", "ALSO_AT sse2")
        self.assertEqual(names, ["some_test.Plain", "some_test.Plain@sse2", "some_test.Other",
                                 "some_test.Other@sse2", "some_test.Typed", "some_test.Typed@sse2"])
        self.assertEqual(filters[0], filters[1])
        self.assertEqual(self.levels, ["sse2"] * 3)

    def test_program_that_fails_or_is_missing_is_an_entry_that_fails(self):
        self.assertEqual(self.entries(None)[0], ["some_test_NOT_BUILT"])
        self.assertEqual(self.entries("#!/bin/sh\nexit 1\n")[0], ["some_test_LISTS_NO_TESTS"])


if __name__ == "__main__":
    CTEST, SCRIPT = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
