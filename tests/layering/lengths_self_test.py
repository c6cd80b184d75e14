#!/usr/bin/env python3
"""Feeds lengths.py functions of every form, and one violation of each rule."""

import unittest

import lengths


def function(lines, signature="void F()"):
    return signature + " {\n" + "  x();\n" * (lines - 2) + "}\n"


class Functions(unittest.TestCase):
    def lines(self, text):
        return [lines for _, lines, _ in lengths.functions_of(text)]

    def test_every_form_is_counted_with_its_signature(self):
        for text, lines in [
            ("int F() { return 1; }\n", [1]),
            ("absl::Status F(int a,\n               int b) {\n  return {};\n}\n", [4]),
            ("template <class T>\nint F(T t) {\n  return 1;\n}\n", [4]),
            ("struct S {\n  int F() const override {\n    return 1;\n  }\n};\n", [3]),
            ("class C {\n public:\n  C() : a_{1}, b_(2) {\n  }\n  int a_ = 0;\n};\n", [2]),
            ("auto F() -> int {\n  return 1;\n}\n", [3]),
            ("MACRO(x)\nnamespace n {\nint F() {\n}\nint G() {\n}\n}\n", [2, 2]),
            ("// } {\nint F() {\n  g('{', \"}\", 1'000);\n  return 0;\n}\n", [4]),
        ]:
            self.assertEqual(self.lines(text), lines, text)

    def test_lambda_and_local_type_count_to_their_function(self):
        self.assertEqual(self.lines("int F() {\n  struct S {\n    int G() { return 1; }\n  };\n"
                                    "  auto f = [] {\n    return 1;\n  };\n}\n"), [8])

    def test_variable_is_no_function(self):
        for text in ["int a = {1};\n", "const Table kTable = {{1, f(2)}, {3, 4}};\n",
                     "std::vector<int> v{1};\n", "enum class E { kA, kB };\n"]:
            self.assertEqual(self.lines(text), [], text)

    def test_place_is_named(self):
        self.assertEqual(list(lengths.functions_of("\nint F() {\n}\n")), [(2, 2, "int F()")])


class Rules(unittest.TestCase):
    def broken(self, texts):
        functions, long_functions, _ = lengths.measure(texts)
        return lengths.is_broken(functions, long_functions)

    def test_one_function_in_a_hundred_too_long_is_a_violation(self):
        short = function(70) * 3 + function(2) * 96
        self.assertFalse(self.broken({"a.cc": short}))
        self.assertTrue(self.broken({"a.cc": short, "b.cc": function(71)}))
        self.assertFalse(self.broken({"a.cc": short + function(2), "b.cc": function(71)}))

    def test_long_file_is_named_and_no_violation(self):
        text = "int F() {\n}\n" + "\n" * 499
        self.assertEqual(lengths.measure({"a.cc": text})[2], [("a.cc", 501)])
        self.assertFalse(self.broken({"a.cc": text}))

    def test_tree_without_functions_is_a_violation(self):
        self.assertTrue(self.broken({}))


if __name__ == "__main__":
    unittest.main()
