"""Plays systemd for a daemon: stores the descriptors that the daemon sends with FDSTORE=1 (see
sd_pid_notify_with_fds(3)), and passes them to the next daemon. Like systemd, it stores several
descriptors of one name, but none twice of the same file.
"""

import ctypes
import fcntl
import os
import signal
import socket
import stat
import sys
import time

PATIENCE_SECONDS = 120
FIRST_HANDED_OVER = 3  # SD_LISTEN_FDS_START
HIGH = 500             # above the descriptors that are passed on
OF_THE_DAEMON = ["manifest", "node"]


class Manager:
    """The part of systemd that a daemon uses."""

    def __init__(self, program, folder):
        self.program = program
        self.daemon_socket = str(folder / "geminid.sock")
        self.notify_path = str(folder / "notify")
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.notify_path)
        self.notify.settimeout(0.05)
        self.store = []  # (name, descriptor) pairs
        self.ready_at = None
        self.log = open(folder / "log", "a")

    def listen(self):
        """Reads the messages received so far. Returns True if the daemon has reported that it is ready."""
        ready = False
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(self.notify, 4096, 4)
            except (TimeoutError, socket.timeout):
                return ready
            said = dict(line.split("=", 1) for line in message.decode().splitlines() if "=" in line)
            name = said.get("FDNAME")
            if said.get("READY") == "1":
                ready = True
                self.ready_at = time.monotonic()
            if "FDSTORE" in said:
                self.keep(name, descriptors.pop())
            elif "FDSTOREREMOVE" in said:
                self.forget(name)
            for descriptor in descriptors:
                os.close(descriptor)

    def keep(self, name, descriptor):
        if any(is_same_file(descriptor, kept) for _, kept in self.store):
            os.close(descriptor)
        else:
            self.store.append((name, descriptor))

    def forget(self, name):
        for kept, descriptor in self.store:
            if kept == name:
                os.close(descriptor)
        self.store = [(kept, descriptor) for kept, descriptor in self.store if kept != name]

    def names(self):
        return sorted(name for name, _ in self.store)

    def page(self, path):
        """Returns the daemon's answer for this path of its metrics socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_SECONDS)
            connection.connect(self.daemon_socket + ".http")
            connection.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            answer = b""
            while got := connection.recv(1 << 16):
                answer += got
        return answer.decode()

    def start(self):
        self.pid = os.fork()
        if self.pid == 0:
            self.become_the_daemon()
        until(lambda: self.listen())

    def become_the_daemon(self):
        die_with_this_process()
        os.dup2(self.log.fileno(), 2)
        names = [name for name, _ in self.store]
        moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, HIGH) for _, descriptor in self.store]
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
        os.kill(self.pid, number)
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            self.listen()  # the daemon waits for a manager that does not read
        self.listen()


def die_with_this_process():
    """Call it in a child: the kernel then kills the child if its parent dies first."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def is_same_file(one, other):
    """Returns whether two descriptors are the same file. Eventfds share their numbers, so they never count as the same."""
    has_file = stat.S_ISREG(os.fstat(one).st_mode)
    return has_file and os.path.sameopenfile(one, other)


def until(condition):
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > give_up:
            sys.exit("waited too long")
