#!/usr/bin/env python3
"""manuals_test.py ROOT BIN MANUALS: each program's manual page and completion have its flags; the page is valid troff."""

import gzip
import pathlib
import shutil
import subprocess
import sys
import unittest

ROOT, BIN, MANUALS = map(pathlib.Path, sys.argv[1:4])
sys.path.insert(0, str(ROOT))

from tools.packaging import help_text  # noqa: E402

PROGRAMS = ("geminid", "geminid-agent", "geminictl", "geminid-train", "geminid-sim", "geminid-gpu-verify")


def page_of(program):
    return next(MANUALS.glob(f"man[18]/{program}.[18].gz"))


def completed(program, words):
    """Returns bash's completions of the last word."""
    script = (f'source "$1"; COMP_WORDS=({" ".join(repr(word) for word in words)}); '
              f'COMP_CWORD={len(words) - 1}; _{program.replace("-", "_")}; printf "%s\\n" "${{COMPREPLY[@]}}"')
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", str(MANUALS / "bash" / program)],
                          capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


class Manuals(unittest.TestCase):
    def commands(self):
        for program in PROGRAMS:
            yield from help_text.everything(help_text.read(BIN / program))

    def test_every_flag_is_in_the_manual_page(self):
        for shown in self.commands():
            text = gzip.decompress(page_of(shown.command[0]).read_bytes()).decode()
            for option in shown.options:
                self.assertIn(option.flag.replace("-", "\\-"), text, shown.command)

    def test_every_flag_and_subcommand_is_completed(self):
        for shown in self.commands():
            found = completed(shown.command[0], [*shown.command, ""])
            wanted = {option.flag for option in shown.options}
            wanted |= {subcommand.name for subcommand in shown.subcommands}
            self.assertLessEqual(wanted, found, shown.command)

    def test_beginning_of_a_word_is_enough(self):
        self.assertEqual(completed("geminictl", ["geminictl", "ls", "ch"]), {"chunks"})
        self.assertEqual(completed("geminictl", ["geminictl", "--timeout", ""]), set())

    @unittest.skipUnless(shutil.which("groff"), "there is no groff")
    def test_pages_are_good_troff(self):
        for program in PROGRAMS:
            text = gzip.decompress(page_of(program).read_bytes())
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=text,
                                  capture_output=True, check=True, timeout=60)
            self.assertEqual(done.stderr, b"", program)

    def test_completions_are_good_scripts(self):
        for shell, kind, name in (("bash", "bash", "{}"), ("zsh", "zsh", "_{}"), ("fish", "fish", "{}.fish")):
            if not shutil.which(shell):
                continue
            for program in PROGRAMS:
                subprocess.run([shell, "-n", str(MANUALS / kind / name.format(program))], check=True,
                               timeout=60)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
