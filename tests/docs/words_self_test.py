#!/usr/bin/env python3
"""Feeds words.py texts with and without internal words."""

import unittest

import words


class Words(unittest.TestCase):
    def violations(self, line):
        return list(words.violations_of("daemon/x.cc", line))

    def test_words_of_the_inside_are_violations(self):
        for text in ("3 granules", "call CreateArena first", "leave has_home unset",
                     "an extent lies there", "kAnyOffset"):
            self.assertEqual(len(self.violations(f'  Fail("{text}");')), 1, text)

    def test_words_of_people_are_allowed(self):
        for text in ("a chunk has no place on the device", "set GEMINID_SOCKET", "state HOLD_AFTER_BACKWARD",
                     "device memory", "NO_COLOR"):
            self.assertEqual(self.violations(f'  Fail("{text}");'), [], text)

    def test_paths_of_calls_are_allowed_and_no_more(self):
        self.assertEqual(self.violations('  Method("/geminid.v1.SessionService/CreateArena");'), [])
        self.assertEqual(len(self.violations('  Fail("/geminid.v1.SessionService/CreateArena failed");')), 1)

    def test_code_and_comments_are_allowed(self):
        for line in ('  CreateArena(session, "x");', "// CreateArena", '#include "kAny.h"'):
            self.assertEqual(self.violations(line), [], line)


if __name__ == "__main__":
    unittest.main()
