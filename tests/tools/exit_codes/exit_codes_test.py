#!/usr/bin/env python3
"""exit_codes_test.py ROOT BIN: provokes errors in every program and compares the exit codes with the table."""

import ctypes.util
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
BIN = pathlib.Path(sys.argv[2])
DAEMON = "geminid"
TOOLS = [name for name in ("geminid-train", "geminictl", "geminid-sim", "geminid-gpu-verify",
                           "geminid-kernel-check") if (BIN / name).exists()]


def read_table():
    """Returns the numbers of base/exit_code.h by name."""
    text = (ROOT / "base/exit_code.h").read_text()
    return {name: int(number) for name, number in re.findall(r"(k\w*Exit\w+) = (\d+)", text)}


CODE = read_table()


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = self.write("text", "x" * 4000)

    def write(self, name, content, mode=0o600):
        path = self.folder / name
        path.write_text(content)
        path.chmod(mode)
        return str(path)

    def run_program(self, command, variables=(), **options):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("GEMINID_")}
        environment.update(variables)
        options.setdefault("stdout", subprocess.PIPE)
        return subprocess.run([str(BIN / command[0]), *command[1:]], stderr=subprocess.PIPE,
                              env=environment, text=True, timeout=120, check=False, **options)

    def expect(self, code, *command, words="", **options):
        done = self.run_program(command, **options)
        self.assertEqual(done.returncode, CODE[code], f"{command}: {done.stderr}")
        self.assertIn(words, done.stderr)
        if code not in ("kExitOk", "kDaemonExitOk"):
            self.assertNotEqual(done.stderr.strip(), "", command)
        return done

    def test_version_of_every_program_is_its_name_and_the_trees_version(self):
        tree = re.search(r"project\(geminid VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        helpers = [name for name in ("geminid-agent", "geminid-holder") if (BIN / name).exists()]
        for name in [DAEMON, *helpers, *TOOLS]:
            if name != "geminictl":  # `geminictl version` is a table
                code = "kExitOk" if name in TOOLS else "kDaemonExitOk"
                self.assertEqual(self.expect(code, name, "--version").stdout, f"{name} {tree}\n")

    def train(self, *arguments):
        return ("geminid-train", "--model", "gpt2-tiny", "--text", self.text, "--steps", "1",
                *arguments)

    def silent_socket(self):
        """Makes a socket that accepts a connection and never answers."""
        path = str(self.folder / "silent")
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(path)
        listener.listen(8)
        return path

    def test_help_and_version_are_well(self):
        for tool in TOOLS:
            self.expect("kExitOk", tool, "--help")
        self.expect("kDaemonExitOk", DAEMON, "--help")
        self.expect("kDaemonExitOk", DAEMON, "--version")

    def test_wrong_arguments_are_usage(self):
        for tool in TOOLS:
            self.expect("kExitUsage", tool, "--no-such-flag", words="--no-such-flag")
            self.expect("kExitUsage", tool, "unexpected", words="unexpected")
        self.expect("kDaemonExitUsage", DAEMON, "--no-such-flag", words="--no-such-flag")
        self.expect("kDaemonExitUsage", DAEMON, "unexpected", words="unexpected")

    def test_values_that_cannot_be_are_usage_and_the_daemons_configuration(self):
        self.expect("kExitUsage", *self.train("--device-memory", "-1"))
        self.expect("kExitUsage", "geminictl", "status", "--timeout", "soon")
        self.expect("kExitUsage", "geminid-sim", "run", "--random", "chain:1", "--set", "x=1")
        self.expect("kExitUsage", "geminid-gpu-verify", "--device", "-1")
        self.expect("kDaemonExitConfig", DAEMON, "--host-memory", "-1")
        self.expect("kDaemonExitConfig", DAEMON, "--config", str(self.folder / "none.json"))

    def test_an_unknown_level_of_instruction_sets_is_usage(self):
        unknown = {"GEMINID_MAX_ISA": "avx"}
        words = "GEMINID_MAX_ISA is 'avx'; it must be one of: sse2, avx2, avx512, avx512_bf16, amx"
        self.expect("kExitUsage", *self.train(), words=words, variables=unknown)
        self.expect("kExitOk", "geminid-train", "--help", variables=unknown)
        if "geminid-kernel-check" in TOOLS:
            self.expect("kExitUsage", "geminid-kernel-check", words=words, variables=unknown)

    def test_nobody_there_is_unavailable(self):
        nobody = str(self.folder / "nobody")
        self.expect("kExitUnavailable", "geminictl", "status", "--socket", nobody)
        self.expect("kExitUnavailable", *self.train("--socket", nobody))
        if ctypes.util.find_library("cuda") is None:
            self.expect("kExitUnavailable", "geminid-gpu-verify")
            if "geminid-kernel-check" in TOOLS:
                self.expect("kExitUnavailable", "geminid-kernel-check")

    def test_missing_files_are_not_found(self):
        none = str(self.folder / "none.json")
        self.expect("kExitNotFound", "geminictl", "trace", "show", none, words=none)
        self.expect("kExitNotFound", "geminid-sim", "run", "--trace", none, words=none)
        self.expect("kExitNotFound", "geminid-train", "--model", "gpt2-tiny", "--text", none,
                    words=none)

    def test_files_of_others_are_a_permission(self):
        secret = self.write("secret.json", "{}", mode=0)
        # Root without its capabilities may not read everything.
        prefix = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
        for command in (("geminictl", "trace", "show", secret),
                        ("geminid-sim", "run", "--trace", secret),
                        ("geminid-train", "--model", "gpt2-tiny", "--text", secret)):
            done = subprocess.run([*prefix, str(BIN / command[0]), *command[1:]], check=False,
                                  capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, CODE["kExitPermission"], f"{command}: {done.stderr}")
            self.assertIn(secret, done.stderr)

    def test_silence_is_a_deadline(self):
        silent = self.silent_socket()
        self.expect("kExitDeadline", "geminictl", "status", "--timeout", "0.2", "--socket", silent)

    def test_what_does_not_fit_is_resources(self):
        self.expect("kExitResourceExhausted", *self.train("--device-memory", "64KiB"))
        self.expect("kExitResourceExhausted", "geminid-sim", "run", "--random", "chain:1",
                    "--device-memory", "4KiB")

    def test_file_at_the_daemons_socket_is_its_configuration(self):
        self.expect("kDaemonExitConfig", DAEMON, "--socket", self.text, "--host-memory", "1MiB")

    def test_output_that_gets_lost_is_never_well(self):
        for tool in TOOLS:
            with open("/dev/full", "w") as full:
                self.expect("kExitResourceExhausted", tool, "--help", stdout=full, words="output")
        for argument in ("--help", "--version", "--check-config"):
            with open("/dev/full", "w") as full:
                self.expect("kDaemonExitResources", DAEMON, argument, stdout=full, words="output")
        with open("/dev/full", "w") as full:
            self.expect("kExitResourceExhausted", "geminid-sim", "run", "--random", "chain:1",
                        stdout=full, words="output")
            self.expect("kExitResourceExhausted", "geminictl", "version", stdout=full,
                        words="output")

    def test_closed_output_is_never_well(self):
        for tool in TOOLS:
            done = self.run_program([tool, "--help"], stdout=None,
                                    preexec_fn=lambda: os.close(1))
            self.assertEqual(done.returncode, CODE["kExitFailed"], f"{tool}: {done.stderr}")


class Pages(unittest.TestCase):
    def test_page_shows_the_table(self):
        page = (ROOT / "docs/exit_codes.md").read_text()
        shown = {name: int(number)
                 for number, name in re.findall(r"^\| (\d+)(?: \+ n)? \| `(\w+)` \|", page, re.M)}
        self.assertEqual(shown, CODE)

    def test_no_program_has_a_table_of_its_own(self):
        for folder in ("tools", "daemon", "client"):
            for file in (ROOT / folder).rglob("*"):
                if file.suffix in (".cc", ".h"):
                    own = re.search(r"constexpr int k\w*Exit\w*\b.*=", file.read_text())
                    self.assertIsNone(own, f"{file}: {own and own.group()}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
