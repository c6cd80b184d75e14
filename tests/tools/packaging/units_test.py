#!/usr/bin/env python3
"""units_test.py ROOT: the units are good, expose little, and say what the daemon relies on; scripts are good shell."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
SYSTEM = ROOT / "deploy/systemd/geminid.service"
USER = ROOT / "deploy/systemd/user/geminid.service"
# 2.5 of 10; systemd-analyze counts in tenths.
MOST_EXPOSURE = 25

needs_systemd = unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def complaints(text):
    """What systemd says of a unit of the system, in a root that has the program."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for program in ("usr/bin/geminid", "bin/kill"):
            (root / program).parent.mkdir(parents=True, exist_ok=True)
            (root / program).write_text("#!/bin/sh\n")
            (root / program).chmod(0o755)
        unit = root / "etc/systemd/system/geminid.service"
        unit.parent.mkdir(parents=True)
        unit.write_text(text)
        done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
                   f"--root={root}", "geminid.service")
        return (done.stdout + done.stderr).strip() or ("" if done.returncode == 0 else "it failed")


def exposure(path):
    done = run("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSURE}",
               "--no-pager", str(path))
    return done.returncode, (done.stdout + done.stderr)[-200:]


class Units(unittest.TestCase):
    @needs_systemd
    def test_unit_of_the_system_is_good(self):
        self.assertEqual(complaints(SYSTEM.read_text()), "")

    @needs_systemd
    def test_wrong_value_is_found(self):
        self.assertNotEqual(complaints(SYSTEM.read_text().replace("WatchdogSec=20", "WatchdogSec=soon")), "")

    @needs_systemd
    def test_unit_of_a_user_is_good(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "geminid.service"
            unit.write_text(USER.read_text().replace("/usr/bin/geminid", "/bin/true"))
            done = run("systemd-analyze", "verify", "--user", "--man=no", "--recursive-errors=no",
                       str(unit), env=dict(os.environ, XDG_RUNTIME_DIR=folder))
            self.assertEqual((done.returncode, done.stderr.strip()), (0, ""))

    @needs_systemd
    def test_exposure_is_low(self):
        code, said = exposure(SYSTEM)
        self.assertEqual(code, 0, said)

    @needs_systemd
    def test_unit_that_exposes_more_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "geminid.service"
            kept = [line for line in SYSTEM.read_text().splitlines()
                    if not line.startswith(("Protect", "Restrict", "SystemCall", "Capability"))]
            unit.write_text("\n".join(kept))
            self.assertNotEqual(exposure(unit)[0], 0)

    def test_watchdog_waits_twice_as_long_as_the_probe(self):
        turn = re.search(r"kLongestTurn = core::Duration::Seconds\((\d+)\)",
                         (ROOT / "daemon/service/health.h").read_text()).group(1)
        for unit in (SYSTEM, USER):
            self.assertIn(f"WatchdogSec={2 * int(turn)}\n", unit.read_text(), unit)

    def test_scripts_of_the_packages_are_good_shell(self):
        for script in ("postinst", "prerm", "postrm"):
            done = run("sh", "-n", str(ROOT / "deploy/debian" / script))
            self.assertEqual((done.returncode, done.stderr), (0, ""), script)
            self.assertIn("set -e", (ROOT / "deploy/debian" / script).read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
