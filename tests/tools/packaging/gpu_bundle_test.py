#!/usr/bin/env python3
"""gpu_bundle_test.py SOURCE: tests what tools/gpu-bundle makes of wheels, and what it refuses."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
loader = importlib.machinery.SourceFileLoader("gpu_bundle", str(SOURCE / "tools/gpu-bundle"))
script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(script)


class Bundle(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        for name, value in (("OUT", self.folder), ("ROOT", self.folder)):
            self.addCleanup(setattr, script, name, getattr(script, name))
            setattr(script, name, value)

    def test_ProgramsOfAWheel_StayExecutable(self):
        wheel = self.folder / "a.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, mode in (("a/bin/program", 0o755), ("a/data", 0o644)):
                entry = zipfile.ZipInfo(name)
                entry.external_attr = (0o100000 | mode) << 16
                archive.writestr(entry, "it")
        script.unpack_wheel(wheel, self.folder / "out")
        self.assertTrue(os.access(self.folder / "out/a/bin/program", os.X_OK))
        self.assertEqual((self.folder / "out/a/data").stat().st_mode & 0o777, 0o644)

    def test_BundleOverTheLimit_IsRefusedWithTheWayOut(self):
        content = self.folder / "geminid-gpu"
        content.mkdir()
        (content / "it").write_bytes(os.urandom(100_000))
        self.addCleanup(setattr, script, "MOST_BYTES", script.MOST_BYTES)
        script.MOST_BYTES = 10_000
        with contextlib.redirect_stdout(io.StringIO()), self.assertRaisesRegex(script.machine.Failed, "--without-peers"):
            script.pack(content, "1.2.3")
        script.MOST_BYTES = 200_000
        with contextlib.redirect_stdout(io.StringIO()):
            bundle = script.pack(content, "1.2.3")
        listed = subprocess.run(["tar", "-tf", bundle], check=True, capture_output=True, text=True).stdout
        self.assertEqual(listed.split(), ["geminid-gpu/", "geminid-gpu/it"])

    def test_PeerThatCannotBeHad_IsLeftOutWithTheReason(self):
        failed = subprocess.CompletedProcess([], 1, "", "WARNING: it\nERROR: no network\n")
        self.addCleanup(setattr, script.machine, "try_run", script.machine.try_run)
        script.machine.try_run = lambda *_, **__: failed
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            script.add_peers(self.folder)
        self.assertIn("trainstream==0.4.1 is left out: ERROR: no network", said.getvalue())
        self.assertFalse((self.folder / "peers").exists())


if __name__ == "__main__":
    unittest.main()
