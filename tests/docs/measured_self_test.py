"""Each rule of measured.py finds its violation, and no other text."""

import unittest

import measured

GOOD = """# Benchmarks

## Machines

| machine | what |
|---|---|
| A | one |

## Targets

| what | target | taken by |
|---|---|---|
| this | 1 | `tools/benchmark a_bench`, A, 2026-11-21, commit 1234567 |

## One

Taken by `tools/benchmark b_bench` on 2026-11-28, 2 processors of AMD EPYC (AVX2),
commit 1234567890.

| x |
|---|
| 1 |
"""
NAMES = {"a_bench", "b_bench", "c_bench"}


class Measured(unittest.TestCase):
    def found(self, text=GOOD, page=measured.PAGE, tables=("a_bench", "b_bench")):
        return list(measured.violations_of({page: text}, NAMES, tables))

    def test_a_page_that_says_all_is_well(self):
        self.assertEqual(self.found(), [])

    def test_a_line_that_lacks_something_is_found(self):
        for gone, name in (("`tools/benchmark b_bench`", "command"), ("2026-11-28", "date"), ("AMD EPYC", "processor"),
                           ("commit 1234567890", "commit")):
            found = self.found(GOOD.replace(gone, "something"), tables=())
            self.assertEqual(found, [f"docs/benchmarks.md: no {name} in: {found[0].split(': ', 2)[2]}"])

    def test_a_row_that_lacks_something_is_found(self):
        for gone, name in (("`tools/benchmark a_bench`", "command"), ("2026-11-21", "date"), ("commit 1234567 ", "commit")):
            found = self.found(GOOD.replace(gone, ""), tables=())
            self.assertEqual(len(found), 1, found)
            self.assertIn(f"no {name} in the row: | this", found[0])

    def test_a_table_without_a_line_is_found(self):
        found = self.found(GOOD.replace("Taken by", "Had by"), tables=())
        self.assertEqual(found, ['docs/benchmarks.md: no line "Taken by" in the section ## One'])
        self.assertEqual(self.found(GOOD.replace("Taken by", "Had by"), page="docs/other.md", tables=()), [])

    def test_a_name_that_is_not_known_and_a_table_that_is_not_in_a_page_are_found(self):
        found = self.found(GOOD + "\n`tools/benchmark d_bench`\n", tables=("a_bench", "b_bench", "c_bench"))
        self.assertEqual(found, ["docs/benchmarks.md: tools/benchmark knows no d_bench",
                                 "no page says that a table was taken by tools/benchmark c_bench"])


if __name__ == "__main__":
    unittest.main()
