"""A Debian machine in a folder, booted by systemd-nspawn, for tests that need a real systemd."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

PATIENCE_SECONDS = 120
PACKAGES = "systemd,systemd-sysv,dbus,procps"
# Control groups of the host. Two containers must not share one.
HIERARCHIES = [pathlib.Path("/sys/fs/cgroup") / name for name in ("unified", "systemd")]


class Failed(Exception):
    pass


def version_of(build):
    """Returns the project's version in the configuration of the build folder."""
    cache = (build / "CMakeCache.txt").read_text()
    return re.search(r"^CMAKE_PROJECT_VERSION:STATIC=(.+)$", cache, re.MULTILINE).group(1)


def try_run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def run(command, **options):
    done = try_run(command, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit code {done.returncode}\n"
                     f"{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"waited {PATIENCE_SECONDS} s for {what}")
        time.sleep(0.05)


def make_root(folder, archive, suite="bookworm"):
    """Makes a new system in `folder`. `archive` stores it for the next time."""
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        part = archive.with_name("part-" + archive.name)
        run(["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(part)])
        part.rename(archive)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run(["tar", "-C", str(folder), "-xf", str(archive)])
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", folder / "etc" / name)


class Machine:
    """A context with a machine that is booted in `folder`."""

    def __init__(self, folder):
        self.folder = folder
        self.name = f"geminid{os.getpid()}"
        self.groups = [root / self.name for root in HIERARCHIES if root.exists()]

    def __enter__(self):
        for group in self.groups:
            group.mkdir(exist_ok=True)

        def enter_groups():
            for group in self.groups:
                (group / "cgroup.procs").write_text(str(os.getpid()))

        environment = dict(os.environ, SYSTEMD_NSPAWN_UNIFIED_HIERARCHY="1")
        self.nspawn = subprocess.Popen(
            ["systemd-nspawn", "-q", "-D", str(self.folder), f"--machine={self.name}", "--register=no",
             "--keep-unit", "--console=pipe", "--private-network", "--capability=all", "--boot"],
            env=environment, preexec_fn=enter_groups, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._wait_until_up()
        except Failed:
            self.__exit__()
            raise
        return self

    def _wait_until_up(self):
        children = pathlib.Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children")

        def is_up():
            # The first child makes the machine and ends. The next child is the machine's first process.
            self.leader = next(iter(children.read_text().split()), None)
            return self.leader and self.try_run("test -S /run/systemd/private").returncode == 0

        wait_for("the machine's systemd", is_up)
        self.try_run("systemctl is-system-running --wait")

    def __exit__(self, *_):
        leader = getattr(self, "leader", None)
        if leader:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(leader), signal.SIGRTMIN + 4)  # power off
        try:
            self.nspawn.wait(30)
        except subprocess.TimeoutExpired:
            self.nspawn.kill()
            self.nspawn.wait()
        for group in self.groups:
            for folder, _, _ in os.walk(group, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass  # a process still uses the group; the next boot uses it again

    def command(self, shell):
        return ["nsenter", "-t", self.leader, "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--",
                "/bin/sh", "-c", shell]

    def try_run(self, shell):
        return subprocess.run(self.command(shell), capture_output=True, text=True, check=False,
                              timeout=PATIENCE_SECONDS)

    def run(self, shell):
        done = self.try_run(shell)
        if done.returncode != 0:
            raise Failed(f"{shell}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, shell):
        return subprocess.Popen(self.command(shell), stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def show(self, name, unit="geminid.service"):
        return self.run(f"systemctl show -P {name} {unit}").strip()
