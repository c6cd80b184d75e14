#!/usr/bin/env python3
"""Feeds readme_snippet.py a README that matches its example, and READMEs that do not."""

import unittest

import readme_snippet

EXAMPLE = "#include <a>\n\nint main() {\n  return 1;\n}\n"


class ReadmeSnippet(unittest.TestCase):
    def test_whole_example_fits(self):
        self.assertIsNone(readme_snippet.problem_of(f"text\n```cpp\n{EXAMPLE}```\n", EXAMPLE))

    def test_changed_line_is_a_problem(self):
        readme = "```cpp\n" + EXAMPLE.replace("1", "2") + "```\n"
        self.assertIn("not the example", readme_snippet.problem_of(readme, EXAMPLE))

    def test_part_of_the_example_is_a_problem(self):
        readme = "```cpp\nint main() {\n  return 1;\n}\n```\n"
        self.assertIn("not the example", readme_snippet.problem_of(readme, EXAMPLE))

    def test_long_example_is_a_problem(self):
        example = "\n" * 41
        readme = f"```cpp\n{example}```\n"
        self.assertIn("41 lines", readme_snippet.problem_of(readme, example))

    def test_no_or_two_blocks_are_a_problem(self):
        self.assertIn("0 C++ blocks", readme_snippet.problem_of("", EXAMPLE))
        self.assertIn("2 C++ blocks", readme_snippet.problem_of("```cpp\n```\n" * 2, EXAMPLE))


if __name__ == "__main__":
    unittest.main()
