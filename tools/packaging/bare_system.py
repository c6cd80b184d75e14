"""Tests a tarball in systems with only essential packages, in a folder with an unpredictable name."""

import contextlib
import pathlib
import re
import shutil

from tools.packaging import libc, machine

OLDER, NEWER = "bullseye", "trixie"
SUITES = (OLDER, "bookworm", NEWER)
TEXT = "/usr/share/common-licenses/GPL-3"
PLACE = "srv/some where"
# The kernels are slow without a GPU.
PATIENCE_SECONDS = 600
# The daemon starts this program, and only the daemon uses it.
STARTED_BY_OTHERS = {"geminid-holder"}
# The driver without a GPU is only for the test, and not in the tarball.
DOUBLES = "srv/double"


class Root:
    """A system in a folder, with the tarball."""

    def __init__(self, suite, tarball, out):
        self.suite = suite
        self.folder = out / suite
        archive = out / f"{suite}.tar"
        if not archive.exists():
            part = out / f"part-{suite}.tar"
            machine.run(["mmdebstrap", "--variant=essential", suite, str(part)])
            part.rename(archive)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        machine.run(["tar", "-C", str(self.folder), "-xf", str(archive)])
        self.place = self.folder / PLACE
        self.place.mkdir(parents=True)
        machine.run(["tar", "-C", str(self.place), "--strip-components=1", "-xJf", str(tarball)])

    @contextlib.contextmanager
    def mounted(self):
        mounts = [("proc", "proc", []), ("tmpfs", "dev/shm", [])]
        done = []
        try:
            for kind, where, more in mounts:
                (self.folder / where).mkdir(parents=True, exist_ok=True)
                machine.run(["mount", "-t", kind, *more, kind, str(self.folder / where)])
                done.append(where)
            yield self
        finally:
            for where in reversed(done):
                machine.run(["umount", str(self.folder / where)])

    def command(self, *words, **variables):
        settings = [f"{name}={value}" for name, value in variables.items()]
        return ["chroot", str(self.folder), "/usr/bin/env", "-i", "PATH=/usr/bin:/bin", "TMPDIR=/tmp", *settings, *words]

    def run(self, program, *arguments, **variables):
        return machine.run(self.command(f"/{PLACE}/{program}", *arguments, **variables), timeout=PATIENCE_SECONDS)

    def try_run(self, program, *arguments, **variables):
        return machine.try_run(self.command(f"/{PLACE}/{program}", *arguments, **variables), timeout=PATIENCE_SECONDS)

    def programs(self):
        return sorted(path.name for path in (self.place / "bin").iterdir())

    def glibc(self):
        said = machine.run(self.command("/usr/bin/ldd", "--version"))
        return tuple(map(int, re.search(r"(\d+)\.(\d+)\s*$", said.splitlines()[0]).groups()))


def train(root, **variables):
    gpu = ["--device", "cuda"] if "GEMINID_LIBCUDA" in variables else ["--device-memory", "8MiB", "--ranks", "2"]
    root.run("bin/geminid-train", "--model", "gpt2-tiny", "--steps", "3", "--text", TEXT, "--progress", "lines", *gpu,
             **variables)


def library_of_the_system(folder):
    """Returns a library of a release whose C library has several files. Like a GPU's driver there, it needs libpthread.so.0."""
    for path in sorted((folder / "lib/x86_64-linux-gnu").glob("*.so.*")):
        if path.is_symlink() or not path.is_file() or path.name.startswith(("libc-", "libpthread", "librt")):
            continue
        if "libpthread.so.0" in machine.run(["objdump", "-p", str(path)]):
            return "/" + str(path.relative_to(folder))
    raise machine.Failed(f"no library in {folder} needs libpthread.so.0")


def switch(root, needed):
    """Tests a system whose C library is too old: programs report it, run after own-libc, and elsewhere after another call."""
    words = root.try_run("bin/geminictl", "--version")
    if words.returncode == 0 or "GLIBC_" not in words.stderr:
        raise machine.Failed(f"{root.suite} has glibc {root.glibc()}, and programs that need {needed} started: {words.stdout}")
    root.run(libc.SWITCH)
    # The folder moves twice.
    for _ in range(2):
        elsewhere = root.place.with_name("moved")
        root.place.rename(elsewhere)
        machine.run(root.command("/srv/moved/" + libc.SWITCH))
        elsewhere.rename(root.place)
    root.run(libc.SWITCH)
    library = library_of_the_system(root.folder)
    said = root.try_run("bin/geminid-gpu-verify", GEMINID_LIBCUDA=library).stderr
    if "no cuGetProcAddress_v2" not in said:
        raise machine.Failed(f"{library} cannot be loaded beside our C library: {said}")
    print(f"  {root.suite}: after own-libc, here and moved, beside {library} of the system")


def with_double(root, build):
    """Runs the checks for a GPU on the driver without one."""
    doubles = root.folder / DOUBLES
    doubles.mkdir(parents=True)
    names = {"GEMINID_LIBCUDA": "cuda_double", "GEMINID_LIBNVML": "nvml_double", "GEMINID_GPU_DOUBLE_KERNELS": "double_kernels"}
    variables = {}
    for variable, name in names.items():
        shutil.copy(build / f"tests/gpu/double/libgeminid_{name}.so", doubles)
        variables[variable] = f"/{DOUBLES}/libgeminid_{name}.so"
    # The file of the simulated GPUs, which all processes share.
    machine.run([str(build / "bin/geminid-with-double"), "sh", "-c", f'cp "$GEMINID_GPU_DOUBLE" "{doubles}/node"'])
    variables["GEMINID_GPU_DOUBLE"] = f"/{DOUBLES}/node"
    root.run("bin/geminid-driver-conformance", "--real-driver", **variables)
    root.run("bin/geminid-kernel-check", "--no-timing", **variables)
    train(root, **variables)


def try_tarball(tarball, needed, build, out, keep):
    for suite in SUITES:
        root = Root(suite, tarball, out)
        with root.mounted():
            glibc = root.glibc()
            if glibc < needed:
                switch(root, needed)
            for program in root.programs():
                if program not in STARTED_BY_OTHERS:
                    root.run(f"bin/{program}", "--help")
            train(root)
            with_double(root, build)
            print(f"  {suite}, glibc {'.'.join(map(str, glibc))}: every program starts; a job of two ranks trains with a "
                  "daemon of its own;\n    on the driver without a GPU its conformance and the kernels hold, and a model trains")
        if not keep:
            shutil.rmtree(root.folder)
