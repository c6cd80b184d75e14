"""Runs podman and buildah with all of their data in build/image. They use and leave nothing else on the machine."""

import os
import pathlib
import subprocess

from tools.packaging import machine

STATE = pathlib.Path(__file__).resolve().parents[2] / "build/image"
# runc, because crun refuses machines with both versions of cgroups. The limits are those that a user without
# CAP_SYS_RESOURCE already has.
CONFIGURATION = """[containers]
default_ulimits=["nofile=20000:20000","nproc=1000:1000"]
[engine]
runtime="runc"
cgroup_manager="cgroupfs"
events_logger="file"
"""


def environment():
    STATE.mkdir(parents=True, exist_ok=True)
    configuration = STATE / "containers.conf"
    configuration.write_text(CONFIGURATION)
    return dict(os.environ, CONTAINERS_CONF=str(configuration))


def storage():
    return ["--root", str(STATE / "storage"), "--runroot", str(STATE / "run"), "--storage-driver", "overlay"]


def podman(*arguments):
    return machine.run(["podman", *storage(), *arguments], env=environment())


def try_podman(*arguments, timeout=300):
    return subprocess.run(["podman", *storage(), *arguments], env=environment(), capture_output=True, text=True,
                          check=False, timeout=timeout)


def buildah(*arguments):
    return machine.run(["buildah", *storage(), *arguments], env=environment())
