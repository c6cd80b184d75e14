#!/usr/bin/env python3
"""Feeds readme_snippet.py a README that fits its example, and ones that do not."""

import unittest

import readme_snippet

EXAMPLE = "#include <a>\n\nint F() {\n  return 1;\n}\n\nint main() {}\n"


class ReadmeSnippet(unittest.TestCase):
    def test_part_of_the_example_fits(self):
        readme = "text\n```cpp\nint F() {\n  return 1;\n}\n```\n"
        self.assertIsNone(readme_snippet.problem_of(readme, EXAMPLE))

    def test_changed_line_is_a_problem(self):
        readme = "```cpp\nint F() {\n  return 2;\n}\n```\n"
        self.assertIn("not in the example", readme_snippet.problem_of(readme, EXAMPLE))

    def test_no_or_two_blocks_are_a_problem(self):
        self.assertIn("0 C++ blocks", readme_snippet.problem_of("", EXAMPLE))
        self.assertIn("2 C++ blocks", readme_snippet.problem_of("```cpp\n```\n" * 2, EXAMPLE))


if __name__ == "__main__":
    unittest.main()
