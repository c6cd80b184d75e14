#!/usr/bin/env python3
"""blocks.py runs the right blocks, leaves out the right ones, and finds a block that fails."""

import pathlib
import stat
import tempfile
import unittest

import blocks


def page(*texts):
    return "words\n\n" + "\n".join(f"```\n{text}\n```\n" for text in texts)


class Blocks(unittest.TestCase):
    def test_commands_are_blocks_and_what_programs_say_is_none(self):
        text = page("geminictl status", "geminid-train: rank 1 died", "A=1 geminid-train --text FILE")
        self.assertEqual(blocks.blocks_of(text), ["geminictl status\n", "A=1 geminid-train --text FILE\n"])
        self.assertEqual(blocks.blocks_of("```python\nimport x\n```\n\n```\ngeminid &\n```\n"), ["geminid &\n"])

    def test_runs_are_scaled_down_and_end(self):
        self.assertEqual(blocks.scaled("geminid-train --text FILE --steps 2000   # long\n"), "geminid-train --text FILE --steps 2\n")
        self.assertEqual(blocks.scaled("geminid-train --text FILE\n"), "geminid-train --text FILE --steps 2\n")
        self.assertEqual(blocks.scaled("geminid-train --text FILE \\\n  --epochs 9\n"), "geminid-train --text FILE    --epochs 1\n")

    def test_what_runs_behind_others_lasts(self):
        self.assertEqual(blocks.scaled("geminid-train --steps 40 &\n"), "geminid-train --steps 1000000 &\n")
        self.assertEqual(blocks.scaled("geminid-train --job x &\n"), "geminid-train --job x --steps 1000000 &\n")

    def test_block_that_is_left_out_is_named_and_one_that_is_gone_too(self):
        script, left_out = blocks.script_of("README.md", page("tools/test"))
        self.assertNotIn("tools/test", script)
        self.assertIn(("README.md", "tools/test"), left_out)
        self.assertIn("tools/quickstart", blocks.stale("README.md", left_out))

    def programs(self, folder, code):
        """Makes programs that end at once; with --fail, they end with `code`."""
        for name in ("geminid", "geminid-train", "geminictl"):
            file = pathlib.Path(folder) / name
            file.write_text(f'#!/bin/sh\nfor word; do test "$word" = --fail && exit {code}; done\nexit 0\n', encoding="utf-8")
            file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return folder

    def test_block_that_fails_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = self.programs(folder, 5)
            wrong = blocks.run("docs/x.md", page("geminictl status", "geminictl --fail", "geminictl ls"), programs)
            self.assertEqual(len(wrong), 1)
            self.assertIn("docs/x.md: the last block ends with 5:\n== geminictl status\n== geminictl --fail\n", wrong[0])
            self.assertEqual(blocks.run("docs/x.md", page("geminictl status"), programs), [])

    def test_block_that_should_fail_and_does_not_is_found(self):
        squeeze = "geminid-train --text $text --model gpt2-20m --ranks 2 --batch 4 --steps 4"
        with tempfile.TemporaryDirectory() as folder:
            wrong = blocks.run("docs/tutorial.md", page(squeeze), self.programs(folder, 7))
            self.assertTrue(any("it ended with 0 instead of 7" in line for line in wrong))
            self.assertFalse(any("instead of" in line for line in blocks.run(
                "docs/tutorial.md", page(squeeze + " --fail"), self.programs(folder, 7))))


if __name__ == "__main__":
    unittest.main()
