#!/usr/bin/env python3
"""no_driver_self_test.py AGENT: feeds no_driver.py each violation, and AGENT, a program that has all of them."""

import pathlib
import sys
import unittest

import no_driver

PLAIN = "\tlibstdc++.so.6 => /lib/libstdc++.so.6 (0x1)\n"


def found(contents, libraries=PLAIN):
    return list(no_driver.violations_of(contents, libraries))


class NoDriver(unittest.TestCase):
    def test_plain_program_is_allowed(self):
        self.assertEqual(found(b"\x7fELF cuda:0=8GiB geminid-agent"), [])

    def test_linked_library_is_a_violation(self):
        for name in ("libcuda.so.1", "libcudart.so.13", "libnvidia-ml.so.1"):
            self.assertEqual(found(b"", f"{PLAIN}\t{name} => not found\n"), [f"it links {name}"])

    def test_name_for_dlopen_or_dlsym_is_a_violation(self):
        for name in no_driver.NAMES:
            self.assertEqual(found(b"\x00" + name + b"\x00"), [f"it knows {name.decode()}"])

    def test_agent_loads_the_driver(self):
        self.assertTrue(found(pathlib.Path(AGENT).read_bytes()))


if __name__ == "__main__":
    AGENT = sys.argv.pop(1)
    unittest.main()
