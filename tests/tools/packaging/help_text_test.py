#!/usr/bin/env python3
"""The parser reads a program's --help completely, in every form that our programs use."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

from tools.packaging import completion, help_text, man_page  # noqa: E402

TOP = """Does something. And more.
Usage: prog [OPTIONS] SUBCOMMAND

Options:
  -h,--help                   Print this help message and exit
  --out PATH                  Where to,
                              in two lines


Others:
  --long-name-that-fills-it on|off
                              Its text is below

Subcommands:
  run                         Runs it. It takes long

Models it knows:
  small  1
"""
RUN = """Runs it. It takes long
Usage: prog run [OPTIONS] what

Positionals:
  what TEXT REQUIRED          The thing

Options:
  -h,--help                   Print this help message and exit
  --count N=3                 How often
"""
PLAIN = """usage: plain [OPTION...]

Answers things, one per
line. Without any it answers all.

  --list           print them and end
  --json FILE      also write them

It changes nothing:
run it.
"""


def read(command):
    return help_text.parse(command, TOP if len(command) == 1 else RUN, read)


class HelpText(unittest.TestCase):
    def setUp(self):
        self.help = read(("prog",))

    def test_options_have_names_values_and_whole_texts(self):
        seen = [(option.names, option.value, option.text) for option in self.help.options]
        self.assertEqual(seen, [
            (["-h", "--help"], "", "Print this help message and exit"),
            (["--out"], "PATH", "Where to, in two lines"),
            (["--long-name-that-fills-it"], "on|off", "Its text is below")])
        self.assertEqual([option.takes_file for option in self.help.options], [False, True, False])

    def test_subcommands_are_read_with_what_they_take(self):
        run = self.help.subcommands[0]
        self.assertEqual(run.command, ("prog", "run"))
        self.assertEqual(run.positionals, [("what", "The thing")])
        self.assertEqual(run.options[1].value, "N=3")

    def test_what_is_no_list_of_options_is_kept(self):
        self.assertEqual(self.help.notes, [("Models it knows", ["  small  1"])])

    def test_plain_help_is_read_too(self):
        shown = help_text.parse(("plain",), PLAIN, None)
        self.assertEqual(shown.summary, "Answers things, one per line. Without any it answers all.")
        self.assertEqual([option.flag for option in shown.options], ["--list", "--json"])
        self.assertEqual(shown.notes, [("", ["It changes nothing: run it."])])

    def test_manual_page_has_all_of_it(self):
        page = man_page.render(self.help, "9.9")
        for part in ("prog \\- does something\n", "\\fB\\-\\-out\\fR \\fIPATH\\fR", ".SS run",
                     "\\fIwhat\\fR", "MODELS IT KNOWS\n.nf\n  small  1\n.fi"):
            self.assertIn(part, page)

    def test_text_that_troff_would_obey_is_escaped(self):
        self.assertEqual(man_page.escaped(".so a\\b"), "\\&.so a\\eb")

    def test_options_of_the_program_are_completed_after_a_subcommand(self):
        for made in (completion.bash(self.help), completion.zsh(self.help)):
            run = made[made.index("'run')"):]
            self.assertIn("--out", run)
            self.assertIn("--count", run)
        self.assertIn("-n '_" + "_prog_at \\'run\\'' -l count -x", completion.fish(self.help))


if __name__ == "__main__":
    unittest.main()
