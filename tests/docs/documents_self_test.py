#!/usr/bin/env python3
"""Feeds documents.py one violation of each rule, and similar text that is allowed."""

import pathlib
import tempfile
import unittest

import documents

HELPS = {
    ("geminictl",): {"--json", "--help"},
    ("geminictl", "ls"): {"--limit", "--help"},
    ("geminictl", "ls", "chunks"): {"--session", "--help"},
    ("geminid-sim",): {"--help"},
    ("geminid-sim", "run"): {"--trace", "--help"},
}


class Documents(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        for path in ("docs/adr/1.md", "tools/test", "daemon/core/a.h", "daemon/core/a.cc"):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text("# One heading, of two\n")

    def tearDown(self):
        self.folder.cleanup()

    def violations(self, text, page="docs/page.md"):
        return documents.violations_of(self.root, page, text, HELPS)

    def test_link_to_nothing_is_a_violation(self):
        self.assertEqual(len(self.violations("[x](adr/2.md)")), 1)
        self.assertEqual(len(self.violations("![x](pictures/2.svg)")), 1)
        self.assertEqual(len(self.violations("[x](adr/1.md#no-heading)")), 1)

    def test_link_to_something_is_allowed(self):
        for target in ("adr/1.md", "adr", "adr/1.md#one-heading-of-two", "https://x.org/y"):
            self.assertEqual(self.violations(f"[x]({target})"), [], target)
        self.assertEqual(self.violations("[x](docs/adr/1.md)", "README.md"), [])

    def test_path_to_nothing_is_a_violation(self):
        for code in ("`daemon/memory`", "`tools/tset -R X`", "```\ndaemon/core/b.h  what\n```\n",
                     "    tools/tset\n", "`daemon/core/a.{h,cc,cu}`", "`kernels/*/x.h`"):
            self.assertEqual(len(self.violations(code)), 1, code)

    def test_path_to_something_is_allowed(self):
        for code in ("`daemon/core/`", "`tools/test -R X`", "`daemon/core/a.{h,cc}`",
                     "`daemon/*/*.h`", "`/etc/daemon/x`", "`build/tools/x`", "daemon/memory",
                     "```\ntools/test\n```\n"):
            self.assertEqual(self.violations(code), [], code)

    def test_unknown_flag_is_a_violation(self):
        for code in ("`geminictl --jsn`", "`other --its-own geminictl --jsn`",
                     "```\ngeminictl ls chunks \\\n  --sesion 1\n```\n",
                     "    x/bin/geminid-sim run --limit 3\n", "`--tarce FILE`",
                     "`geminid-sim --trace x`"):
            self.assertEqual(len(self.violations(code)), 1, code)

    def test_known_flag_is_allowed(self):
        for code in ("`geminictl --json`", "`other --its-own 2 geminictl --json`",
                     "`geminictl --json ls chunks --session 1 --limit 3`",
                     "    geminid-sim run --trace x  # or --tarce\n", "`--trace FILE`",
                     "`git log --oneline`", "`python -m geminictl doctor --of-its-own`"):
            self.assertEqual(self.violations(code), [], code)


if __name__ == "__main__":
    unittest.main()
