#!/usr/bin/env python3
"""reached_tests_test.py FOLDER: tests which tests a change reaches, in a project of two programs and two scripts."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

NINJA = """
rule compile
  command = cp $in $out && echo "$out: $in $reads" > $out.d
  depfile = $out.d
  deps = gcc
rule CXX_EXECUTABLE_LINKER__any
  command = cat $in > $out && chmod +x $out
build one.o: compile ../one.cc
  reads = ../shared.h ../own.h
build two.o: compile ../two.cc
  reads = ../shared.h
build bin/one: CXX_EXECUTABLE_LINKER__any one.o
build bin/two: CXX_EXECUTABLE_LINKER__any two.o
"""
CTEST = """
add_test(One "{build}/bin/one" "--filter=A")
add_test(Two "{build}/bin/two")
add_test(Script "python3" "{root}/checks/script.py" "--program={build}/bin/two")
add_test(Folder "python3" "{root}/others/script.py" "{root}/pages")
"""


class Reached(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.build = self.root / "build"
        shutil.copytree(FOLDER, self.root / "tools" / "cmake", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("one.cc", "two.cc", "shared.h", "own.h", "checks/script.py", "checks/neighbour.py",
                     "others/script.py", "pages/page.md", "CMakeLists.txt", ".gitignore"):
            self.write(name, "build/\n__pycache__/\n" if name == ".gitignore" else "")
        self.write("build/build.ninja", NINJA)
        self.write("build/CTestTestfile.cmake", CTEST.format(build=self.build, root=self.root))
        self.run_in_root("git", "init", "-q", "-b", "main")
        self.run_in_root("git", "add", ".")
        self.run_in_root("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_in_root(self, *command):
        return subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout

    def reached(self, *changes):
        """Returns the programs and the numbers of entries that changes of these files reach."""
        self.run_in_root("ninja", "-C", "build")
        for name in changes:
            self.write(name, "changed")
        said = [self.run_in_root(sys.executable, "-B", "tools/cmake/reached_tests.py", what, "build", "HEAD")
                for what in ("programs", "entries")]
        return said[0].split(), said[1].strip()

    def test_no_change_reaches_nothing(self):
        self.assertEqual(self.reached(), ([], ""))

    def test_source_reaches_its_program_and_the_entries_that_start_it(self):
        self.assertEqual(self.reached("one.cc"), (["bin/one"], "1"))
        self.assertEqual(self.reached("one.cc", "two.cc"), (["bin/one", "bin/two"], "1,2,3"))

    def test_header_reaches_who_read_it(self):
        self.assertEqual(self.reached("own.h"), (["bin/one"], "1"))

    def test_shared_header_reaches_all_who_read_it(self):
        self.assertEqual(self.reached("shared.h"), (["bin/one", "bin/two"], "1,2,3"))

    def test_script_and_its_neighbour_reach_its_entry(self):
        self.assertEqual(self.reached("checks/script.py"), ([], "3"))
        self.assertEqual(self.reached("checks/neighbour.py"), ([], "3"))

    def test_file_in_a_folder_reaches_who_is_given_the_folder(self):
        self.assertEqual(self.reached("pages/page.md"), ([], "4"))

    def test_file_that_git_does_not_know_yet_and_one_that_is_gone_reach_too(self):
        (self.root / "pages" / "page.md").unlink()
        self.assertEqual(self.reached(), ([], "4"))
        self.assertEqual(self.reached("checks/new.py"), ([], "3,4"))

    def test_change_of_how_it_is_built_reaches_everything(self):
        self.assertEqual(self.reached("CMakeLists.txt"), (["bin/one", "bin/two"], "1,2,3,4"))

    def test_folder_without_a_build_is_said(self):
        done = subprocess.run([sys.executable, "-B", self.root / "tools/cmake/reached_tests.py", "programs",
                               self.build], capture_output=True)
        self.assertEqual(done.returncode, 3)


if __name__ == "__main__":
    FOLDER = sys.argv.pop(1)
    unittest.main()
