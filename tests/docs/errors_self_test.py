#!/usr/bin/env python3
"""Tests what errors.py must find, and what it must accept."""

import unittest

import errors

PAGE = "| Message | Why |\n|---|---|\n| `no room for this` | x |\n"


class Errors(unittest.TestCase):
    def test_message_in_one_literal_or_several_is_there(self):
        for source in ('Fail("no room for this")', 'Fail("no room "\n     "for this")',
                       'StrCat("no room ",\n  "for this; ", why)'):
            self.assertEqual(errors.missing(PAGE, [source]), [], source)

    def test_message_that_nobody_says_is_found(self):
        self.assertEqual(errors.missing(PAGE, ['Fail("no room for that")']), ["no room for this"])


if __name__ == "__main__":
    unittest.main()
