#!/usr/bin/env python3
"""Feeds tools/tidy trees with and without violations. Exit code 77: clang-tidy is missing."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = max(TREE.glob("build/clang-tidy-*/bin/clang-tidy"), default=pathlib.Path("/nowhere"))
CLEAN = "int Twice(int value) { return value + value; }\n"
BAD_NAME = "int Twice(int value) { int Sum = value + value; return Sum; }\n"


class Tidy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        shutil.copy(TREE / ".clang-tidy", self.root)
        self.write("base/good.cc", CLEAN)
        (self.root / ".gitignore").write_text("build/\n")
        self.git("init", "-q", "-b", "main")
        self.commit()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        # A command line of gcc, with -Werror and warnings that clang does not know.
        commands = [{"directory": str(self.root), "file": str(source),
                     "command": f"c++ -I{self.root} -std=c++20 -Wall -Werror -Wnot-of-clang -c {source}"}
                    for source in sorted(self.root.rglob("*.cc"))]
        (self.root / "build/dev").mkdir(parents=True, exist_ok=True)
        (self.root / "build/dev/compile_commands.json").write_text(json.dumps(commands))

    def git(self, *arguments):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=n", "-c", "user.email=n@example.com",
                        "-c", "core.hooksPath=/dev/null", *arguments], check=True,
                       capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-qm", "Change")

    def tidy(self, *arguments, program=PROGRAM):
        return subprocess.run([sys.executable, TREE / "tools/tidy", "--root", self.root,
                               "--program", program, *arguments], capture_output=True, text=True)

    def test_clean_tree_is_clean(self):
        done = self.tidy("--all")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 sources, 0 findings", done.stdout)

    def test_new_file_with_a_bad_name_is_a_violation(self):
        self.write("base/bad.cc", BAD_NAME)
        done = self.tidy()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("base/bad.cc:1:28:", done.stdout)
        self.assertIn("readability-identifier-naming", done.stdout)
        self.assertIn("1 sources, 1 findings", done.stdout)

    def test_committed_change_on_a_branch_is_checked(self):
        self.git("checkout", "-qb", "branch")
        self.write("base/bad.cc", BAD_NAME)
        self.commit()
        self.write("base/later.cc", CLEAN)
        self.commit()
        done = self.tidy()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("2 sources, 1 findings", done.stdout)

    def test_file_of_an_earlier_commit_is_checked_by_all_alone(self):
        self.write("base/bad.cc", BAD_NAME)
        self.commit()
        self.write("base/later.cc", CLEAN)
        self.commit()
        self.assertEqual(self.tidy().returncode, 0)
        self.assertEqual(self.tidy("--all").returncode, 1)

    def test_changed_header_is_checked_through_a_source(self):
        self.write("base/bad.h", f"inline {BAD_NAME}")
        self.write("base/user.cc", '#include "base/bad.h"\nint Four() { return Twice(2); }\n')
        self.commit()
        self.write("base/bad.h", f"// changed\ninline {BAD_NAME}")
        done = self.tidy()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("base/bad.h:2:", done.stdout)

    def test_finding_is_found_again_and_a_mended_file_is_clean(self):
        self.write("base/bad.cc", BAD_NAME)
        self.assertEqual(self.tidy().returncode, 1)
        self.assertEqual(self.tidy().returncode, 1)
        self.write("base/bad.cc", CLEAN)
        self.assertEqual(self.tidy().returncode, 0)
        self.assertIn("(as before)", self.tidy().stderr)

    def test_static_analyzer_runs_when_asked(self):
        self.write("base/bad.cc", "int Get() {\n  int* place = nullptr;\n  return *place;\n}\n")
        self.assertEqual(self.tidy().returncode, 0)
        done = self.tidy("--analyzer")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("clang-analyzer-core.NullDereference", done.stdout)

    def test_source_of_a_group_is_checked_by_itself(self):
        self.write("base/bad.cc", BAD_NAME)
        group = self.root / "build/dev/base/base_test_groups/group_0.cc"
        group.parent.mkdir(parents=True)
        group.write_text("".join(f'#include "{self.root}/base/{name}.cc"\n' for name in ("good", "bad")))
        (self.root / "build/dev/compile_commands.json").write_text(json.dumps(
            [{"directory": str(self.root), "file": str(group), "command": f"c++ -std=c++20 -c {group}"}]))
        done = self.tidy("--all")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("base/bad.cc:1:28:", done.stdout)
        self.assertIn("2 sources, 1 findings", done.stdout)

    def test_file_that_does_not_compile_is_a_violation(self):
        self.write("base/bad.cc", "int Twice(\n")
        self.assertEqual(self.tidy().returncode, 1)

    def test_accessor_may_be_named_like_its_variable(self):
        self.write("base/fine.cc", "class Box {\n public:\n  int bytes() const { return bytes_; }\n\n"
                                   " private:\n  int bytes_ = 0;\n};\nint Size(const Box& box) "
                                   "{ return box.bytes(); }\n")
        done = self.tidy()
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_without_clang_tidy_it_is_skipped_and_says_so(self):
        done = self.tidy(program=self.root / "nowhere")
        self.assertEqual(done.returncode, 77)
        self.assertIn("tools/tidy --install", done.stdout)

    def test_without_a_build_it_is_skipped_and_says_so(self):
        done = self.tidy("--build", "build/none")
        self.assertEqual(done.returncode, 77)
        self.assertIn("cmake --preset dev", done.stdout)


if __name__ == "__main__":
    if not PROGRAM.is_file():
        print("skipped: there is no clang-tidy; tools/tidy --install puts it into build/")
        sys.exit(77)
    unittest.main()
