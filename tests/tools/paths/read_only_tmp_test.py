"""read_only_tmp_test.py GEMINID_TRAIN

Trains with a read-only /tmp, in a separate mount namespace. Without another folder the error names the
tried folders and the fix. With another folder training works as usual. Exit code 77: this system
allows no such namespace.
"""

import os
import subprocess
import sys
import tempfile

SKIPPED = 77
PERMISSION = 5
PATIENCE_SECONDS = 120
READ_ONLY = "mount --bind /tmp /tmp && mount -o remount,ro,bind /tmp && exec \"$@\""


def in_namespace(command, environment):
    """Runs the command with a read-only /tmp. Returns its output and exit status."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    ran = subprocess.run(["unshare", *user, "--mount", "sh", "-c", READ_ONLY, "sh", *command],
                         env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, errors="replace", timeout=PATIENCE_SECONDS, check=False)
    return ran.returncode, ran.stderr


def main():
    program = os.path.abspath(sys.argv[1])
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("XDG_RUNTIME_DIR", "TMPDIR", "GEMINID_SOCKET")}
    status, said = in_namespace(["sh", "-c", "! touch /tmp/x 2>/dev/null"], environment)
    if status != 0:
        print(f"no mount namespace can be had here: {said.strip()}")
        return SKIPPED
    failures = 0
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("to be or not to be\n" * 1000)
        text.flush()
        train = [program, "--model", "gpt2-tiny", "--steps", "1", "--text", text.name]
        status, said = in_namespace(train, environment)
        if (status != PERMISSION or "/tmp (Read-only file system)" not in said
                or "set TMPDIR to a folder that you can write to" not in said):
            failures += 1
            print(f"without a folder that can be written to: ends with {status}\n{said}")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            status, said = in_namespace(train, {**environment, "TMPDIR": folder})
            if status != 0 or os.listdir(folder):
                failures += 1
                print(f"with TMPDIR={folder}: ends with {status}, leaves "
                      f"{os.listdir(folder)}\n{said}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
