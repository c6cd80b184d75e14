#!/usr/bin/env python3
"""progress_test.py PROGRAM: tests the messages of a running build."""

import importlib.machinery
import importlib.util
import io
import os
import subprocess
import sys
import unittest


def load(path):
    loader = importlib.machinery.SourceFileLoader("progress", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("progress", loader))
    loader.exec_module(module)
    return module


class Progress(unittest.TestCase):
    def shown(self, lines, on_terminal=False):
        out = io.StringIO()
        load(PROGRAM).show(lines, out, on_terminal)
        return out.getvalue()

    def test_time_left_is_in_proportion_to_the_steps_left(self):
        self.assertEqual(self.shown(["[30/100 60.0] Building CXX object a.o\n"]),
                         "build: 30 of 100 steps in 1 min 00 s, about 2 min left\n")
        self.assertEqual(self.shown(["[80/100 80.0] a\n"]), "build: 80 of 100 steps in 1 min 20 s, about 20 s left\n")

    def test_few_steps_predict_nothing_and_none_are_left_at_the_end(self):
        self.assertEqual(self.shown(["[4/100 21.0] a\n", "[100/100 22.5] b\n"]),
                         "build: 4 of 100 steps in 21 s\nbuild: 100 of 100 steps in 22 s\n")

    def test_no_terminal_gets_a_line_every_twenty_seconds(self):
        lines = [f"[{second}/1000 {second}.0] a\n" for second in range(1, 101)]
        self.assertEqual(self.shown(lines).count("\n"), 5)

    def test_terminal_gets_every_step_on_one_line(self):
        text = self.shown(["[1/4 1.0] Building CXX object folder/a.o\n", "[2/4 2.0] b\n"], on_terminal=True)
        self.assertEqual(text.count("\n"), 1)
        self.assertIn("  a.o\r", text)

    def test_other_lines_are_no_progress(self):
        self.assertEqual(self.shown(["warning: [x]\n", "\n"]), "")

    def test_line_is_shown_before_the_next_one_comes(self):
        reader, writer = os.pipe()
        with subprocess.Popen([sys.executable, "-B", PROGRAM], stdin=reader, stdout=subprocess.PIPE,
                              text=True) as program:
            os.close(reader)
            os.write(writer, b"[50/100 30.0] a\n")
            self.assertIn("50 of 100", program.stdout.readline())
            os.close(writer)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
