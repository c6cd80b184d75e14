#!/usr/bin/env python3
"""units_test.py ROOT: the units are valid, expose little, and set what the daemon relies on. The scripts are valid shell."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

# The test reads messages of other programs. A locale that is not installed would add warnings.
os.environ["LC_ALL"] = "C.UTF-8"
ROOT = pathlib.Path(sys.argv[1])
SYSTEM = ROOT / "deploy/systemd/geminid.service"
SOCKETS = [ROOT / "deploy/systemd" / name for name in ("geminid.socket", "geminid-attach.socket")]
USER = ROOT / "deploy/systemd/user/geminid.service"
# An exposure of 2.5 of 10. systemd-analyze counts in tenths.
MOST_EXPOSURE = 25

needs_systemd = unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def complaints(text, sockets=()):
    """Returns systemd's complaints about system units, in a root folder that has the program."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for program in ("usr/bin/geminid", "bin/kill"):
            (root / program).parent.mkdir(parents=True, exist_ok=True)
            (root / program).write_text("#!/bin/sh\n")
            (root / program).chmod(0o755)
        unit = root / "etc/systemd/system/geminid.service"
        unit.parent.mkdir(parents=True)
        unit.write_text(text)
        for socket, of_socket in sockets:
            (unit.parent / socket).write_text(of_socket)
        done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
                   f"--root={root}", "geminid.service", *(socket for socket, _ in sockets))
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
    def test_sockets_are_good(self):
        sockets = [(path.name, path.read_text()) for path in SOCKETS]
        self.assertEqual(complaints(SYSTEM.read_text(), sockets), "")
        wrong = [(name, text.replace("Backlog=4096", "Backlog=many")) for name, text in sockets]
        self.assertNotEqual(complaints(SYSTEM.read_text(), wrong), "")

    def test_sockets_are_where_the_service_looks(self):
        """The sockets also have the names that the daemon asks for."""
        names = (ROOT / "daemon/holder/systemd_store.h").read_text()
        for path, kind, end in ((SOCKETS[0], "ListenStream", ""),
                                (SOCKETS[1], "ListenSequentialPacket", ".attach")):
            text = path.read_text()
            self.assertIn(f"{kind}=/run/geminid/geminid.sock{end}\n", text)
            name = re.search(r"^FileDescriptorName=(.*)$", text, re.MULTILINE).group(1)
            self.assertIn(f'"{name}"', names)

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
                         (ROOT / "daemon/service/watch/health.h").read_text()).group(1)
        for unit in (SYSTEM, USER):
            self.assertIn(f"WatchdogSec={2 * int(turn)}\n", unit.read_text(), unit)

    def test_start_may_take_longer_than_finding_the_gpus(self):
        patience = re.search(r"kProbePatience = absl::Seconds\((\d+)\)",
                             (ROOT / "daemon/service/entry/devices.h").read_text()).group(1)
        start = re.search(r"^TimeoutStartSec=(\d+)$", SYSTEM.read_text(), re.MULTILINE).group(1)
        self.assertGreaterEqual(int(start), int(patience) + 30)

    def test_scripts_of_the_packages_are_good_shell(self):
        for script in ("postinst", "prerm", "postrm"):
            done = run("sh", "-n", str(ROOT / "deploy/debian" / script))
            self.assertEqual((done.returncode, done.stderr), (0, ""), script)
            self.assertIn("set -e", (ROOT / "deploy/debian" / script).read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
