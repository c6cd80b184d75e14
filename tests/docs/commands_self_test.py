#!/usr/bin/env python3
"""Tests what commands.py must find, and what it must accept."""

import unittest

import commands


def page(*lines):
    return "words\n\n```\n" + "\n".join(lines) + "\n```\n"


class Commands(unittest.TestCase):
    def test_command_of_a_block_is_run_with_a_text_that_is_not_there(self):
        got = list(commands.commands_of(page("geminid-train --text corpus.txt --steps 5 &   # five", "ls --all")))
        self.assertEqual(got, [["--text", commands.TEXT, "--steps", "5"]])

    def test_continued_line_is_one_command_and_variables_before_it_are_no_part(self):
        got = list(commands.commands_of(page("GEMINID_MAX_ISA=avx2 geminid-train --text $text \\", "  --steps 5 $flags")))
        self.assertEqual(got, [["--text", commands.TEXT, "--steps", "5"]])

    def test_what_the_program_says_is_no_command(self):
        lines = ("geminid-train: rank 1 was killed", "geminid-train does not train every mesh")
        self.assertEqual(list(commands.commands_of(page(*lines))), [])

    def test_run_that_goes_on_is_left_alone_where_its_folder_says_the_model(self):
        line = "geminid-train --text FILE --save run --resume"
        self.assertEqual(list(commands.commands_of(page(line))), [])
        self.assertEqual(len(list(commands.commands_of(page(line + " --model gpt2-tiny")))), 1)

    def test_command_that_is_refused_is_found_and_one_without_its_text_is_not(self):
        pages = {"docs/x.md": page("geminid-train --steps 5 --parallel ring=2", "geminid-train --text FILE --steps 5")}
        run = lambda arguments: (2, "no such axis") if "--parallel" in arguments else (4, "does not exist")
        self.assertEqual(list(commands.violations_of(pages, run)),
                         ["docs/x.md: geminid-train --steps 5 --parallel ring=2 ends with 2: no such axis"])


if __name__ == "__main__":
    unittest.main()
