"""Tests the table that tools/coverage makes of gcovr's summaries."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).parents[3] / "tools" / "coverage"


def file(name, lines, ran):
    return {"filename": name, "line_total": lines, "line_covered": ran}


class Coverage(unittest.TestCase):
    def table(self, text, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            summary = pathlib.Path(folder) / "summary.json"
            summary.write_text(text)
            return subprocess.run([sys.executable, "-B", TOOL, "--table", summary, *arguments],
                                  capture_output=True, text=True)

    def rows(self, files, *arguments):
        done = self.table(json.dumps({"files": files}), "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {row["folder"]: (row["lines"], row["ran"]) for row in json.loads(done.stdout)}

    def test_lines_of_a_folder_are_added_up_and_tests_are_left_out(self):
        files = [file("daemon/core/a.cc", 10, 7), file("daemon/os/b.cc", 30, 30),
                 file("client/c.cc", 5, 0), file("tests/d.cc", 99, 99), file("base/only_types.h", 0, 0)]
        self.assertEqual(self.rows(files), {"client": (5, 0), "daemon": (40, 37)})
        self.assertEqual(self.rows(files, "--depth", "2"),
                         {"client": (5, 0), "daemon/core": (10, 7), "daemon/os": (30, 30)})

    def test_table_has_shares_and_their_sum(self):
        done = self.table(json.dumps({"files": [file("daemon/a.cc", 40, 10), file("client/c.cc", 60, 45)]}))
        self.assertRegex(done.stdout, r"client +60 +45 +75\.0%\n")
        self.assertRegex(done.stdout, r"daemon +40 +10 +25\.0%\n")
        self.assertRegex(done.stdout, r"all +100 +55 +55\.0%\n")

    def test_what_is_no_summary_is_named(self):
        for text in ("", "[]", '{"files": [{"filename": "daemon/a.cc"}]}'):
            done = self.table(text)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn("summary.json is no summary of gcovr's", done.stderr)


if __name__ == "__main__":
    unittest.main()
