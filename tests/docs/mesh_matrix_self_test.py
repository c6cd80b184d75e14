#!/usr/bin/env python3
"""mesh_matrix_self_test.py: mesh_matrix.py finds a cell that contradicts the trainer, and a table that it cannot read."""

import unittest

import mesh_matrix

HEAD = "| feature | pipeline | ring |\n|---|---|---|\n"


def page(*rows):
    return "words\n\n" + HEAD + "".join(f"| {row} |\n" for row in rows) + "\nwords\n"


def violations(*rows, refuses=lambda flags: None):
    return list(mesh_matrix.violations_of(page(*rows), refuses))


def refuses_dropout_in_a_ring(flags):
    return "not supported yet" if "--dropout" in flags and "sequence=ring:2" in flags else None


class MeshMatrix(unittest.TestCase):
    def test_PageThatSaysWhatTheTrainerSays_IsGood(self):
        self.assertEqual(violations("`--dropout` | yes | no", refuses=refuses_dropout_in_a_ring), [])

    def test_CellThatSaysYes_WhereTheTrainerRefuses_IsFound(self):
        found = violations("`--dropout` | yes | yes", refuses=refuses_dropout_in_a_ring)
        self.assertEqual(len(found), 1)
        self.assertIn("`--dropout`, ring: yes", found[0])
        self.assertIn("not supported yet", found[0])

    def test_CellThatSaysNo_WhereTheTrainerTakesIt_IsFound(self):
        found = violations("`--dropout` (1) | no (2) | no", refuses=refuses_dropout_in_a_ring)
        self.assertEqual(len(found), 1)
        self.assertIn("pipeline: no", found[0])
        self.assertIn("taken", found[0])

    def test_CellThatStandsForSeveralCommands_AsksForEach(self):
        asked = []
        violations("`--balance-loss` | yes | yes", refuses=asked.append)
        self.assertEqual(len(asked), 4)

    def test_RowThatNoFlagDecides_AsksNothing(self):
        asked = []
        violations("several hosts | yes | yes", refuses=asked.append)
        self.assertEqual(asked, [])

    def test_WhatCannotBeRead_IsAnError(self):
        for row, words in [("`--new` | yes | yes", "unknown row"), ("`--dropout` | yes | maybe", "neither yes nor no"),
                           ("`--dropout` | yes", "1 cells")]:
            with self.subTest(row), self.assertRaisesRegex(ValueError, words):
                violations(row)
        with self.assertRaisesRegex(ValueError, "no table"):
            list(mesh_matrix.violations_of("words", lambda flags: None))


if __name__ == "__main__":
    unittest.main()
