"""service_manager_test.py GEMINID GEMINID_TRAIN

Plays systemd to a daemon: keeps the descriptors that it asks to have kept (FDSTORE=1, as
sd_pid_notify_with_fds(3) says), and hands them to the next one. The daemon is restarted under a
training job of two ranks, in turn with SIGTERM, as `systemctl restart` does, and with SIGKILL. The
weights must be those of a job that was left alone, and nothing may be kept for it in the end.
"""

import fcntl
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE_SECONDS = 120
FIRST_HANDED_OVER = 3  # SD_LISTEN_FDS_START
HIGH = 500             # out of the way of those
PAUSE_SECONDS = 0.3
SIGNALS = [signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL]
OF_THE_DAEMON = ["manifest", "node"]


class Manager:
    """The part of systemd that a daemon sees."""

    def __init__(self, program, folder):
        self.program = program
        self.daemon_socket = str(folder / "geminid.sock")
        self.notify_path = str(folder / "notify")
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.notify_path)
        self.notify.settimeout(0.05)
        self.store = {}
        self.log = open(folder / "log", "a")

    def listen(self):
        """Takes what has come; True if the daemon said that it is ready."""
        ready = False
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(self.notify, 4096, 4)
            except (TimeoutError, socket.timeout):
                return ready
            said = dict(line.split("=", 1) for line in message.decode().splitlines() if "=" in line)
            name = said.get("FDNAME")
            ready = ready or said.get("READY") == "1"
            if "FDSTORE" in said:
                self.forget(name)
                self.store[name] = descriptors.pop()
            elif "FDSTOREREMOVE" in said:
                self.forget(name)
            for descriptor in descriptors:
                os.close(descriptor)

    def forget(self, name):
        if name in self.store:
            os.close(self.store.pop(name))

    def start(self):
        self.pid = os.fork()
        if self.pid == 0:
            self.become_the_daemon()
        until(lambda: self.listen())

    def become_the_daemon(self):
        os.dup2(self.log.fileno(), 2)
        names = list(self.store)
        moved = [fcntl.fcntl(self.store[name], fcntl.F_DUPFD, HIGH) for name in names]
        for i, descriptor in enumerate(moved):
            os.dup2(descriptor, FIRST_HANDED_OVER + i)
        os.closerange(FIRST_HANDED_OVER + len(moved), 2 * HIGH)
        pid = str(os.getpid())
        environment = {"NOTIFY_SOCKET": self.notify_path, "FDSTORE": "4096",
                       "SYSTEMD_EXEC_PID": pid, "LISTEN_PID": pid,
                       "LISTEN_FDS": str(len(moved)), "LISTEN_FDNAMES": ":".join(names)}
        os.execve(self.program, ["geminid", "--socket", self.daemon_socket, "--host-memory", "64MiB",
                                 "--device-memory", "64MiB"], environment)

    def stop(self, number):
        self.listen()
        os.kill(self.pid, number)
        os.waitpid(self.pid, 0)
        self.listen()


def until(condition):
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > give_up:
            sys.exit("waited too long")


def train(program, folder, manager, signals):
    """The weights of a job whose daemon gets `signals` meanwhile."""
    folder.mkdir()
    text = folder / "text"
    text.write_text("".join(f"line {i} of the text\n" for i in range(4000)))
    words = folder / "words"
    with open(words, "w") as written:
        job = subprocess.Popen(
            [program, "--text", text, "--socket", manager.daemon_socket, "--progress", "lines",
             "--model", "gpt2-tiny", "--ranks", "2", "--batch", "4", "--steps", "1200",
             "--device-memory", "1500KiB", "--export", folder / "export"],
            stderr=written, env={"TMPDIR": str(folder)})
    until(lambda: manager.listen() or "step 1/" in words.read_text() or job.poll() is not None)
    for number in signals:
        if job.poll() is not None:
            sys.exit(f"the job ended before its daemon was disturbed:\n{words.read_text()}")
        time.sleep(PAUSE_SECONDS)
        manager.stop(number)
        manager.start()
    until(lambda: manager.listen() or job.poll() is not None)
    if job.returncode != 0:
        sys.exit(f"the job ended with {job.returncode}:\n{words.read_text()}")
    return b"".join(file.read_bytes() for file in sorted((folder / "export").rglob("*.safetensors")))


def main():
    daemon, trainer = (os.path.abspath(path) for path in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="geminid-manager-") as name:
        folder = pathlib.Path(name)
        manager = Manager(daemon, folder)
        manager.start()
        try:
            weights = train(trainer, folder / "calm", manager, [])
            disturbed = train(trainer, folder / "disturbed", manager, SIGNALS)
            until(lambda: manager.listen() or sorted(manager.store) == OF_THE_DAEMON)
        finally:
            manager.stop(signal.SIGTERM)
        holder = (folder / "geminid.sock.holder").exists()
    if holder:
        sys.exit("a holder was started, though systemd keeps the descriptors")
    if not weights or weights != disturbed:
        sys.exit("the weights are not those of the job that was left alone")


if __name__ == "__main__":
    main()
