#!/usr/bin/env python3
"""client_library_self_test.py PROGRAM LAYERS...: feeds client_library.py each violation, and a program that
contains all of LAYERS."""

import pathlib
import sys
import unittest

import client_library

LAYER = "layer.a[group_0.o]:\n_Zpass T 0 1\n_Zloss B 0 4\n_Zinline W 0 1\n_Zhidden t 0 1\n"


def found(library, layer=LAYER):
    return list(client_library.violations_of(library, {"layer.a": layer}))


class ClientLibrary(unittest.TestCase):
    def test_names_of_its_own_are_allowed(self):
        self.assertEqual(found("_Zother T 0 1\n"), [])

    def test_names_that_every_user_of_a_header_has_are_allowed(self):
        self.assertEqual(found("_Zinline W 0 1\n_Zhidden t 0 1\n"), [])

    def test_exported_or_hidden_function_or_object_is_a_violation(self):
        for kind in "Tt":
            self.assertEqual(found(f"_Zpass {kind} 0 1\n"), ["it contains _Zpass of layer.a"])
        for kind in "Bb":
            self.assertEqual(found(f"_Zloss {kind} 0 4\n"), ["it contains _Zloss of layer.a"])

    def test_nothing_to_compare_is_a_violation(self):
        self.assertEqual(len(found("")), 1)
        self.assertEqual(len(found("_Zother T 0 1\n", "")), 1)

    def test_program_with_the_layers_has_names_of_each(self):
        layers = {layer: client_library.names_in(layer) for layer in LAYERS}
        words = list(client_library.violations_of(client_library.names_in(PROGRAM), layers))
        for layer in LAYERS:
            self.assertTrue(any(word.endswith(f" of {layer}") for word in words), layer)


if __name__ == "__main__":
    PROGRAM, LAYERS = sys.argv[1], sys.argv[2:]
    unittest.main(argv=sys.argv[:1])
