#!/usr/bin/env python3
"""group_sources_test.py PROGRAM: tests which sources share a group, and which must not."""

import pathlib
import subprocess
import sys
import tempfile
import unittest


class GroupSources(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "groups"

    def group(self, *texts, size=8):
        """Returns the numbers of the sources of each group."""
        paths = []
        for number, text in enumerate(texts):
            paths.append(self.folder / f"{number}.cc")
            paths[-1].write_text(text)
        printed = subprocess.run([sys.executable, "-B", PROGRAM, self.out, str(size), self.folder, *paths], check=True,
                                 capture_output=True, text=True).stdout
        groups = []
        for name in printed.split(";"):
            path = pathlib.Path(name)
            members = [path] if path in paths else [
                self.folder / line.split('"')[1] for line in path.read_text().splitlines()]
            groups.append([paths.index(member) for member in members])
        return groups

    def assert_apart(self, first, second):
        self.assertEqual(self.group(first, second), [[0], [1]])
        self.assertEqual(self.group(second, first), [[0], [1]])

    def assert_together(self, first, second):
        self.assertEqual(self.group(first, second), [[0, 1]])

    def test_groups_are_no_larger_than_asked(self):
        self.assertEqual(self.group(*[""] * 5, size=2), [[0, 1], [2, 3], [4]])

    def test_source_that_fits_nowhere_else_goes_to_a_later_group(self):
        taken = "namespace { int A() { return 1; } }"
        self.assertEqual(self.group(taken, taken, "int B();"), [[0, 2], [1]])

    def test_name_that_both_keep_for_themselves_keeps_them_apart(self):
        for kept in ("constexpr int kSize = 3;", "class Name {\n  int x;\n};", "struct Name { int x = {3}; };",
                     "enum class Name { kA };", "int Name(int x) { return x; }",
                     "std::vector<int> Name(\n    int x) {\n  if (x) { return {}; }\n  return {x};\n}",
                     "template <typename T>\nT Name(T x) { return x; }", "int name[] = {1, 2};",
                     "const auto kName = [] { return 1; };", "Type Name(Type x);",
                     "std::map<std::string, std::vector<int>> name;", "struct alignas(64) Name {};"):
            with self.subTest(kept):
                source = f"namespace a::b {{\nnamespace {{\n{kept}\n}}  // namespace\n}}\n"
                self.assert_apart(source, source)

    def test_name_that_only_one_keeps_and_the_other_mentions_keeps_them_apart(self):
        keeps = "namespace a {\nnamespace {\nint Make() { return 1; }\n}\n}\n"
        self.assert_apart(keeps, "namespace a { int Two() { return Make(); } }")

    def test_static_name_and_macro_are_kept_too(self):
        self.assert_apart("static int Make() { return 1; }", "int Two() { return Make(); }")
        self.assert_apart("#define MAKE 1", "int Two() { return MAKE; }")

    def test_every_name_after_a_body_is_read(self):
        bodies = ("namespace {\nclass A { void F() {} };\nint B() { return 1; }\nint c{2};\nauto d = [] { return 1; };\n"
                  "constexpr int kLast = 1;\n}\n")
        for name in ("A", "B", "c", "d", "kLast"):
            with self.subTest(name):
                self.assert_apart(bodies, f"int user = {name};")

    def test_name_of_another_scope_is_no_mention(self):
        keeps = "namespace {\nint Make() { return 1; }\n}\n"
        for other in ("int x = y.Make();", "int x = y->Make();", "int x = Space::Make();", "// Make\n",
                      'auto x = "Make";', 'auto x = R"(" Make)";', "#include <Make>\n"):
            with self.subTest(other):
                self.assert_together(keeps, other)

    def test_names_that_all_see_keep_nobody_apart(self):
        self.assert_together("namespace a { int Make() { return 1; } }", "namespace a { int Two() { return Make(); } }")
        self.assert_together("namespace {\nTEST(Suite, One) { EXPECT_TRUE(1); }\n}", "namespace {\nTEST(Suite, Two) {}\n}")

    def test_import_keeps_apart_who_means_another(self):
        imports = "namespace a {\nusing ::testing::Each;\nint x = Each(1);\n}\n"
        self.assert_together(imports, imports)
        self.assert_apart(imports, "namespace a { int y = Each(2); }")
        self.assert_apart(imports, imports.replace("::testing", "other"))

    def test_source_with_headers_in_an_order_stays_alone(self):
        self.assert_apart('#include "kernels/runtime/simd/targets.h"\n', "")
        self.assert_apart('#include "hwy/highway.h"\n', "")
        self.assert_together('#include "hwy.h"\n', "")

    def test_file_that_is_right_is_left_untouched(self):
        self.group("", "")
        before = (self.out / "group_0.cc").stat().st_mtime_ns
        self.group("", "int x;")
        self.assertEqual((self.out / "group_0.cc").stat().st_mtime_ns, before)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
