#!/usr/bin/env python3
"""Tests the violations that exports.py must find."""

import unittest

import exports

HEADER = """
// geminid_commented(void);
typedef int geminid_fill(void* context);
const char* geminid_version(void);
void geminid_free(void* memory);
geminid_code geminid_step(geminid_engine* engine,
                          geminid_error* error);
"""
LISTING = """
0000000000000000 A GEMINID_1
0000000000001000 T geminid_version@@GEMINID_1
0000000000002000 T geminid_free@@GEMINID_1
0000000000003000 T geminid_step@@GEMINID_1
"""


def found(listing):
    return list(exports.violations(exports.declared(HEADER), exports.exported(listing)))


class Exports(unittest.TestCase):
    def test_what_is_declared_and_exported_passes(self):
        self.assertEqual(exports.declared(HEADER), {"geminid_version", "geminid_free", "geminid_step"})
        self.assertEqual(found(LISTING), [])

    def test_a_function_that_is_missing_is_found(self):
        self.assertEqual(found(LISTING.replace("geminid_free@", "geminid_other@")),
                         ["geminid_free is declared, and not exported",
                          "geminid_other is exported, and not declared"])

    def test_a_symbol_of_a_library_inside_is_found(self):
        self.assertEqual(found(LISTING + "0000 W _ZN4absl6StatusD1Ev@@GEMINID_1\n"),
                         ["_ZN4absl6StatusD1Ev is exported, and not declared"])

    def test_a_symbol_without_version_is_found(self):
        self.assertEqual(found(LISTING.replace("geminid_step@@GEMINID_1", "geminid_step")),
                         ["geminid_step is exported under '', not GEMINID_1"])


if __name__ == "__main__":
    unittest.main()
