"""Tests the packages on a machine without other packages: installation, the service, upgrade, removal, purge."""

import json
import shutil
import time

from tools.packaging.machine import Failed, Machine, make_root, run, wait_for

UNIT = "geminid.service"
CONFIG = "/etc/geminid/geminid.textproto"
# A small model, with steps enough for an upgrade during the run.
TRAIN = ("geminid-train --model gpt2-tiny --ranks 2 --text /usr/share/common-licenses/GPL-3 --steps {steps} --progress none "
         "--device-memory 8MiB")


def expect(what, holds, seen=""):
    if not holds:
        raise Failed(f"{what}: {seen}")
    print(f"  {what}")


def in_root(root, *command):
    return run(["chroot", str(root), "/usr/bin/env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8",
                *command])


def copy_into(root, packages, folder):
    target = root / folder
    target.mkdir(exist_ok=True)
    for package in packages:
        shutil.copy(package, target)
    return [f"/{folder}/{package.name}" for package in packages]


def files_of(root):
    """Returns the files of packages and administrators."""
    found = run(["find", str(root), "-xdev", "-path", f"{root}/var", "-prune", "-o", "-path",
                 f"{root}/proc", "-prune", "-o", "-path", f"{root}/tmp", "-prune", "-o", "-path",
                 f"{root}/old", "-prune", "-o", "-path", f"{root}/new", "-prune", "-o", "-print"])
    return {line[len(str(root)):] for line in found.splitlines() if "geminid" in line}


def users_of(root):
    names = (root / "etc/passwd").read_text() + (root / "etc/group").read_text()
    return {line.split(":")[0] for line in names.splitlines()}


def check_programs(root):
    for program in ("geminid", "geminid-agent", "geminictl", "geminid-train", "geminid-sim", "geminid-gpu-verify"):
        missing = [line for line in in_root(root, "ldd", f"/usr/bin/{program}").splitlines()
                   if "not found" in line]
        expect(f"{program} finds its libraries", not missing, missing)
        pages = list((root / "usr/share/man").glob(f"man[18]/{program}.?.gz"))
        expect(f"{program} has a manual page", len(pages) == 1)
    unit = in_root(root, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
                   f"/usr/lib/systemd/system/{UNIT}")
    expect("systemd-analyze verify finds nothing", unit == "", unit)


def is_active(machine):
    return machine.try_run(f"systemctl --quiet is-active {UNIT}").returncode == 0


def train(machine, steps):
    done = machine.try_run(TRAIN.format(steps=steps))
    return done.returncode, done.stdout + done.stderr


def check_service(machine):
    wait_for("the service", lambda: is_active(machine))
    expect("the service runs as geminid",
           machine.run(f"ps -o user= -p {machine.show('MainPID')}").strip() == "geminid")
    expect("its state is in systemctl status", "serving on /run/geminid" in machine.show("StatusText"))
    began = time.monotonic()
    code, said = train(machine, 3)
    expect(f"a job of two ranks trains through the service ({time.monotonic() - began:.0f} s)",
           code == 0, said)
    asked = "exec 3<>/dev/tcp/127.0.0.1/9464; printf 'GET /{} HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3"
    for page, words in (("readyz", "200 OK"), ("metrics", "geminid_sessions_opened_total 2")):
        answer = machine.run(f'bash -c "{asked.format(page)}"')
        expect(f"/{page} is served on loopback", words in answer, answer)
    machine.run("useradd -M -G geminid anna && useradd -M bert")
    status = "geminictl status"
    expect("a member of the group geminid may use it",
           machine.try_run(f"setpriv --reuid anna --regid anna --init-groups {status}").returncode == 0)
    expect("somebody else may not",
           machine.try_run(f"setpriv --reuid bert --regid bert --init-groups {status}").returncode != 0)
    machine.run("userdel anna && userdel bert")


def check_journal(machine):
    """Checks the journal for the two ranks that trained."""
    fields = "journalctl -u geminid GEMINID_LEVEL=info GEMINID_RANK=1 -o json --output-fields=MESSAGE,GEMINID_JOB,PRIORITY"
    entries = [json.loads(line) for line in machine.run(fields).splitlines()]
    expect("the journal has the log's fields", entries and all(entry["PRIORITY"] == "6" and entry["GEMINID_JOB"]
                                                              for entry in entries), entries)


def check_activation(machine):
    machine.run(f"systemctl stop {UNIT} && systemctl reset-failed {UNIT}")
    machine.run("systemctl start geminid.socket geminid-attach.socket")
    expect("sockets alone start nothing", not is_active(machine))
    code, said = train(machine, 1)
    expect("who connects first starts the service and trains", code == 0 and is_active(machine), said)
    machine.run(f"systemctl stop {UNIT}")
    expect("the sockets outlive it", machine.run("ls /run/geminid").split() ==
           ["geminid.sock", "geminid.sock.attach", "geminid.sock.lock"], machine.run("ls /run/geminid"))
    expect("and start it again", machine.try_run("geminictl status").returncode == 0 and is_active(machine))
    machine.run(f"systemctl stop geminid.socket geminid-attach.socket {UNIT} && systemctl start {UNIT}")
    wait_for("the service", lambda: is_active(machine))


def check_reload(machine):
    machine.run(f"systemctl reload {UNIT}")
    wait_for("the reload", lambda: "configuration read again" in machine.run("journalctl -u geminid -o cat"))
    print("  systemctl reload reads the configuration again")
    machine.run(f"cp {CONFIG} /root/good && echo 'keep_tmie: \"1m\"' >> {CONFIG}")
    machine.run(f"systemctl reload {UNIT}")
    wait_for("the refusal", lambda: "all stays as it was" in machine.run("journalctl -u geminid -o cat"))
    expect("a wrong configuration changes nothing", is_active(machine))
    machine.try_run(f"systemctl restart {UNIT}")
    wait_for("the failed start", lambda: machine.show("ActiveState") == "failed")
    said = machine.try_run(f"systemctl status {UNIT}").stdout
    expect("a failed start says why in systemctl status", "did you mean 'keep_time'?" in said, said)
    expect("and is not tried again", machine.show("NRestarts") == "0")
    machine.run(f"cp /root/good {CONFIG} && systemctl reset-failed {UNIT} && systemctl start {UNIT}")


def check_deaths(machine):
    first = machine.show("MainPID")
    machine.run(f"kill -KILL {first}")
    wait_for("the restart", lambda: is_active(machine) and machine.show("MainPID") not in ("0", first))
    print("  a killed daemon is started again")
    second = machine.show("MainPID")
    machine.run(f"kill -STOP {second}")
    wait_for("the watchdog", lambda: machine.show("MainPID") not in ("0", second) and is_active(machine))
    expect("a daemon that stands still is ended by the watchdog",
           "watchdog" in machine.run("journalctl -u geminid -o cat"))
    machine.run(f"systemctl stop {UNIT}")
    expect("it stops", machine.show("Result") == "success" and not is_active(machine))
    left = machine.run("ls /run/geminid").split()
    expect("and leaves nothing but the lock", left == ["geminid.sock.lock"], left)
    machine.run(f"systemctl start {UNIT}")


def under_training(machine, action):
    """Runs `action` while the trainer trains. Returns the trainer's exit code and output."""
    job = machine.start(TRAIN.format(steps=40))
    attached = "geminictl --json status | grep -q '\"sessions\": 2'"
    wait_for("two ranks", lambda: machine.try_run(attached).returncode == 0 or job.poll() is not None)
    if job.poll() is not None:
        raise Failed(f"the job ended at once: {job.stdout.read()}")
    action()
    said, _ = job.communicate(timeout=300)
    return job.returncode, said


def check_restarts(machine):
    for what, shell in (("is killed", f"kill -KILL {machine.show('MainPID')}"),
                        # The trial has started the service more often than systemd allows in a minute.
                        ("is restarted", f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}")):
        before = machine.show("MainPID")
        code, said = under_training(machine, lambda: machine.run(shell))
        expect(f"a job goes on when its daemon {what}", code == 0, said)
        expect("with another one", machine.show("MainPID") not in ("0", before))


def check_upgrade(machine, root, newer):
    names = " ".join(copy_into(root, newer, "new"))
    pid = machine.show("MainPID")
    code, said = under_training(machine, lambda: machine.run(
        f"DEBIAN_FRONTEND=noninteractive dpkg -i {names}"))
    expect("a job goes on while the packages are upgraded", code == 0, said)
    expect("with the daemon it began with", machine.show("MainPID") == pid)
    machine.run(f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}")
    expect("after a restart the new one serves", train(machine, 1)[0] == 0)


def check_removal(machine):
    machine.run(f"systemctl stop {UNIT} && systemctl enable --now geminid.socket geminid-attach.socket && "
                f"systemctl reset-failed {UNIT}; systemctl start {UNIT}")
    wait_for("the service", lambda: is_active(machine))
    code, said = under_training(machine, lambda: machine.run("dpkg -r geminid"))
    expect(f"a job whose daemon is removed ends with an error, exit code {code}", code not in (0, 124),
           said)
    expect("that says why", "daemon" in said, said)
    expect("the service has ended", not is_active(machine))
    sockets = machine.try_run("systemctl is-active geminid.socket geminid-attach.socket").stdout
    expect("and so have the sockets that start it", "\nactive" not in f"\n{sockets}", sockets)


def try_packages(packages, newer, scratch):
    """Tests the packages. Raises Failed at the first failure."""
    root = scratch / "root"
    began = time.monotonic()
    make_root(root, scratch / "root.tar")
    files, users = files_of(root), users_of(root)
    print("installation")
    began = time.monotonic()
    in_root(root, "apt-get", "update")
    in_root(root, "apt-get", "install", "-y", *copy_into(root, packages, "old"))
    expect(f"apt install ./*.deb needs nothing else ({time.monotonic() - began:.0f} s)", True)
    check_programs(root)
    with Machine(root) as machine:
        print("the service")
        check_service(machine)
        expect(f"from nothing to a trained job in {time.monotonic() - began:.0f} s, at most 120",
               time.monotonic() - began < 120)
        check_journal(machine)
        check_activation(machine)
        check_reload(machine)
        check_deaths(machine)
        check_restarts(machine)
        print("upgrade and removal")
        check_upgrade(machine, root, newer)
        check_removal(machine)
        machine.run("dpkg --purge geminid geminid-tools libgeminid-dev libgeminid0.1")
    left = files_of(root) - files
    expect("purge leaves no file", not left, left)
    # Packages that geminid depends on may have made users of their own.
    more = {name for name in users_of(root) - users if "geminid" in name}
    expect("and no user or group", not more, more)
