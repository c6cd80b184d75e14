#!/usr/bin/env python3
"""libraries_test.py ROOT: the output of ldd and dpkg is read correctly, and the bill of materials is complete."""

import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True

from tools.packaging import libc, libraries, sbom  # noqa: E402

LDD = """\tlinux-vdso.so.1 (0x00007ffc)
\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)
\tlibgone.so.2 => not found
\t/lib64/ld-linux-x86-64.so.2 (0x00007f)
"""


class Libraries(unittest.TestCase):
    def test_ldd_names_what_is_found_and_what_is_not(self):
        self.assertEqual(libraries.parse_ldd(LDD),
                         {"libz.so.1": "/lib/x86_64-linux-gnu/libz.so.1", "libgone.so.2": None})

    def test_dpkg_names_owners(self):
        text = ("zlib1g:amd64: /lib/x86_64-linux-gnu/libz.so.1\n"
                "diversion by dash from: /bin/sh\n"
                "dash: /bin/sh\n")
        self.assertEqual(libraries.parse_owners(text),
                         {"/lib/x86_64-linux-gnu/libz.so.1": "zlib1g", "/bin/sh": "dash"})

    def test_paths_are_asked_for_with_and_without_usr(self):
        self.assertIn("/usr/lib/none/libx.so", libraries.spellings("/lib/none/libx.so"))
        self.assertIn("/lib/none/libx.so", libraries.spellings("/usr/lib/none/libx.so"))

    def test_bill_has_every_library_once_and_says_how_it_is_used(self):
        bill = sbom.bill("0.1.0", {"zlib1g": ("1:1.2.13", "zlib")}, {"libcli11-dev": ("2.3.2-1", "cli11")})
        self.assertEqual([c["name"] for c in bill["components"]], ["zlib1g", "libcli11-dev"])
        self.assertEqual(bill["components"][0]["purl"], "pkg:deb/debian/zlib1g@1%3A1.2.13")
        self.assertEqual([c["properties"][0]["value"] for c in bill["components"]], ["linked", "compiled in"])
        self.assertEqual(bill["dependencies"][0]["dependsOn"], ["deb:zlib1g", "deb:libcli11-dev"])
        self.assertEqual(bill, sbom.bill("0.1.0", {"zlib1g": ("1:1.2.13", "zlib")}, {"libcli11-dev": ("2.3.2-1", "cli11")}))


SYMBOLS = """0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.9) read
0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.31) write
0000000000000000      DF *UND*  0000000000000000 (GLIBCXX_3.4.30) _ZSt4cout
0000000000001000 g    DF .text  0000000000000010  GLIBC_2.2.5 open
"""


class TheCLibrary(unittest.TestCase):
    def test_version_needed_is_the_highest_as_numbers_and_of_the_c_library_alone(self):
        self.assertEqual(libc.parse_needs(SYMBOLS), (2, 31))
        self.assertLess(libc.parse_needs(SYMBOLS), libc.parse_needs("(GLIBC_2.36) arc4random"))

    def test_file_that_needs_none_needs_less_than_any(self):
        self.assertLess(libc.parse_needs("(GLIBCXX_3.4.30)"), (2, 0))

    def test_interpreter_is_the_one_that_the_program_names(self):
        text = "      [Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]\n"
        self.assertEqual(libc.parse_interpreter(text), "/lib64/ld-linux-x86-64.so.2")
        self.assertIsNone(libc.parse_interpreter("There are no program headers"))

    def test_switch_refuses_what_it_does_not_know_and_touches_nothing(self):
        done = subprocess.run(["sh", str(libc.HERE / libc.SWITCH), "--other"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (64, ""))
        self.assertIn("usage", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
