"""maintainer_scripts_test.py SOURCE_FOLDER: tests the package scripts' calls to systemd, in a separate root folder."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEBIAN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".") / "deploy/debian"
UNITS = ["geminid.service", "geminid.socket", "geminid-attach.socket"]
RECORDERS = ["deb-systemd-helper", "deb-systemd-invoke", "systemctl", "getent", "deluser", "delgroup"]


class Scripts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "run/systemd/system").mkdir(parents=True)
        self.wants = self.root / "etc/systemd/system/sockets.target.wants"
        self.wants.mkdir(parents=True)
        (self.root / "bin").mkdir()
        for name in RECORDERS:
            program = self.root / "bin" / name
            program.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.root}/said"\n')
            program.chmod(0o755)

    def said_by(self, script, *arguments):
        (self.root / "said").write_text("")
        environment = {"PATH": f"{self.root}/bin:/usr/bin:/bin", "DPKG_ROOT": str(self.root)}
        subprocess.run(["/bin/sh", str(DEBIAN / script), *arguments], check=True, env=environment, timeout=60)
        return (self.root / "said").read_text().splitlines()

    def test_removal_stops_the_sockets_before_the_service(self):
        (stopped,) = [line.split() for line in self.said_by("prerm", "remove") if " stop " in line]
        self.assertEqual(sorted(stopped[2:]), sorted(UNITS))
        self.assertEqual(stopped[-1], "geminid.service", "who connects to a socket starts the service again")

    def test_upgrade_stops_nothing(self):
        self.assertEqual(self.said_by("prerm", "upgrade", "2"), [])

    def test_removal_masks_all_units_and_purge_forgets_them(self):
        for argument, actions in (("remove", ["mask"]), ("purge", ["purge", "unmask"])):
            said = [line.split() for line in self.said_by("postrm", argument)]
            for action in actions:
                told = [line[2:] for line in said if line[:2] == ["deb-systemd-helper", action]]
                self.assertEqual([sorted(units) for units in told], [sorted(UNITS)], action)

    def test_purge_takes_away_what_enabled_the_sockets(self):
        for unit in UNITS[1:]:
            os.symlink(f"/lib/systemd/system/{unit}", self.wants / unit)
        self.said_by("postrm", "remove")
        self.assertEqual(len(list(self.wants.iterdir())), 2)
        self.said_by("postrm", "purge")
        self.assertEqual(list(self.wants.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
