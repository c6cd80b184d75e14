#!/usr/bin/env python3
"""promtool.py GEMINID PROMTOOL: promtool finds no problem in a daemon's metrics page, and finds one in a wrong page."""

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import unittest

GEMINID, PROMTOOL = sys.argv[1:3]

WRONG = """# HELP geminid_colour Its colour.
# TYPE geminid_colour counter
geminid_colour 1
"""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("geminid", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


def lint(page):
    """Returns promtool's complaints about the page; empty: none."""
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True,
                          timeout=60, check=False)
    return (done.stdout + done.stderr).strip() or ("" if done.returncode == 0 else "it failed")


def page_of_a_daemon():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "g.sock")
        ready, told = os.pipe()
        with subprocess.Popen([GEMINID, "--socket", path, "--host-memory", "64MiB", "--device-memory",
                               "64MiB", "--metrics-listen", "off", "--ready-fd", str(told)],
                              pass_fds=[told], stderr=subprocess.DEVNULL) as daemon:
            os.close(told)
            try:
                with os.fdopen(ready) as pipe:
                    assert pipe.readline() == "ready\n"
                connection = UnixConnection(path + ".http")
                connection.request("GET", "/metrics")
                return connection.getresponse().read().decode()
            finally:
                daemon.terminate()


class Promtool(unittest.TestCase):
    def test_page_of_a_daemon_is_clean(self):
        page = page_of_a_daemon()
        self.assertIn("geminid_build_info", page)
        self.assertEqual(lint(page), "")

    def test_wrong_page_is_found(self):
        self.assertIn("_total", lint(WRONG))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
