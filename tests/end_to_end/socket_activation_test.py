"""socket_activation_test.py GEMINID GEMINICTL UNITS

Plays systemd with geminid.socket and geminid-attach.socket for a daemon: listens, and passes the
listeners to the daemon after the first connection, under the names in the units of the folder UNITS.
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

GEMINID, GEMINICTL, UNITS = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
PATIENCE_SECONDS = 60
FIRST_HANDED_OVER = 3  # SD_LISTEN_FDS_START
CONFIG_EXIT_CODE = 78


def setting(unit, key):
    return re.search(rf"^{key}=(.*)$", (UNITS / unit).read_text(), re.MULTILINE).group(1)


class Activation(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="geminid-activation-")
        self.addCleanup(self.folder.cleanup)
        self.path = f"{self.folder.name}/geminid.sock"
        self.listeners = {
            "control": (self.listen(socket.SOCK_STREAM, self.path),
                        setting("geminid.socket", "FileDescriptorName")),
            "attach": (self.listen(socket.SOCK_SEQPACKET, self.path + ".attach"),
                       setting("geminid-attach.socket", "FileDescriptorName"))}

    def listen(self, kind, path):
        listener = socket.socket(socket.AF_UNIX, kind)
        self.addCleanup(listener.close)
        listener.bind(path)
        listener.listen(16)
        return listener

    def start(self, which, path=None):
        """Starts the daemon with these listeners."""
        pid = os.fork()
        if pid == 0:
            handed = [(self.listeners[name][0].fileno(), self.listeners[name][1]) for name in which]
            moved = [(os.dup(descriptor), name) for descriptor, name in handed]
            for i, (descriptor, _) in enumerate(moved):
                os.dup2(descriptor, FIRST_HANDED_OVER + 100 + i)
            for i in range(len(moved)):
                os.dup2(FIRST_HANDED_OVER + 100 + i, FIRST_HANDED_OVER + i)
                os.close(FIRST_HANDED_OVER + 100 + i)
            os.dup2(os.open(f"{self.folder.name}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            os.execve(GEMINID, ["geminid", "--socket", path or self.path, "--host-memory", "64MiB",
                                "--device-memory", "64MiB", "--metrics-listen", "off"],
                      {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(moved)),
                       "LISTEN_FDNAMES": ":".join(name for _, name in moved)})
        return pid

    def end(self, pid):
        os.kill(pid, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def status(self):
        return subprocess.Popen([GEMINICTL, "--socket", self.path, "--timeout", str(PATIENCE_SECONDS),
                                 "status"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def log(self):
        return pathlib.Path(f"{self.folder.name}/log").read_text()

    def test_who_connects_first_is_served_by_each_daemon_in_turn(self):
        for _ in range(2):
            first = self.status()  # before the daemon runs
            pid = self.start(["control", "attach"])
            said, _ = first.communicate(timeout=PATIENCE_SECONDS)
            self.assertEqual(first.returncode, 0, said + self.log())
            self.assertIn("serving", said)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.settimeout(PATIENCE_SECONDS)
                client.connect(self.path + ".attach")
                client.send(b"no hello")
                self.assertNotEqual(client.recv(4096), b"")  # a refusal is an answer, too
            self.assertEqual(self.end(pid), 0)
            for path in (self.path, self.path + ".attach"):
                self.assertTrue(os.path.exists(path), "the sockets are systemd's")

    def test_one_of_two_listeners_is_refused(self):
        pid = self.start(["control"])
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.assertEqual(code, CONFIG_EXIT_CODE, self.log())
        self.assertIn("one of the two listeners", self.log())

    def test_listeners_of_other_names_are_refused_with_the_names_that_are_known(self):
        self.listeners = {which: (listener, f"{which}-foo")
                          for which, (listener, _) in self.listeners.items()}
        pid = self.start(["control", "attach"])
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.assertEqual(code, CONFIG_EXIT_CODE, self.log())
        for words in ("'control-foo'", "'attach-foo'", "FileDescriptorName=control-listener"):
            self.assertIn(words, self.log())

    def test_listener_of_the_network_is_refused_and_named(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.listeners["control"] = (listener, self.listeners["control"][1])
        pid = self.start(["control", "attach"])
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.assertEqual(code, CONFIG_EXIT_CODE, self.log())
        self.assertIn("is an IP socket", self.log())

    def test_listeners_at_another_path_are_refused(self):
        pid = self.start(["control", "attach"], path=self.path + "2")
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.assertEqual(code, CONFIG_EXIT_CODE, self.log())
        self.assertIn("name the same socket", self.log())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
