"""python -m geminid doctor finds and names each problem that a newcomer can have, and its fix. It never shows a traceback."""

import json
import os
import subprocess
import sys

import pytest

from geminid import _programs, doctor

EVERY = ["python", "library", "package", "programs", "environment", "memlock_limit", "dev_shm", "memory", "daemon", "device",
         "torch", "gpu", "training"]


def run(*arguments, **environment):
    return subprocess.run([sys.executable, "-m", "geminid", *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


def only(checks, id_):
    found, = (check for check in checks if check.id == id_)
    return found


def test_machine_that_runs_the_tests_is_well():
    done = run("doctor", "--json")
    said = json.loads(done.stdout)
    verdicts = {check["id"]: check["verdict"] for check in said["checks"]}
    assert said["schema_version"] == 1 and set(EVERY) <= set(verdicts), verdicts
    assert "socket" not in verdicts  # the doctor starts a daemon if none runs
    failed = [check for check in said["checks"] if check["verdict"] == "fail"]
    assert done.returncode == 0 and not failed and said["fail"] == 0, failed
    assert all(check["fix"] for check in said["checks"] if check["verdict"] == "warn")
    training, = (check["found"] for check in said["checks"] if check["id"] == "training")
    assert "plain torch" in training


def test_nothing_at_all_is_told_without_a_traceback():
    done = run("doctor", GEMINID_LIBRARY="/nowhere", GEMINID_DAEMON="/nowhere/geminid", GEMINID_DISABLE="1", PATH="/nowhere")
    assert done.returncode == doctor.UNHEALTHY
    assert "Traceback" not in done.stdout + done.stderr
    for line in ("fail  library", "warn  programs", "warn  environment", "skip  machine", "fail  daemon", "fail  training"):
        assert line in done.stdout
    assert "GEMINID_LIBRARY" in done.stdout and "pip install" in done.stdout


@pytest.mark.parametrize("name, value, fix", [
    ("GEMINID_SOCKET", "/nowhere/geminid.sock", "start the daemon that serves it, or unset it"),
    ("GEMINID_DAEMON", "/nowhere/geminid", "set GEMINID_DAEMON to the program geminid")])
def test_daemon_that_is_not_there_is_told_with_the_variable(monkeypatch, name, value, fix):
    monkeypatch.setenv(name, value)
    found = only(doctor.check_session(), "daemon")
    assert found.verdict == "fail" and value in found.found + found.fix and fix in found.fix


def test_program_that_does_not_start_is_named(monkeypatch, tmp_path):
    broken = tmp_path / "geminid"
    broken.write_text("no program")
    monkeypatch.setenv("GEMINID_DAEMON", str(broken))
    found, = doctor.check_programs()
    assert found.verdict == "fail" and f"{broken} does not start" in found.found


@pytest.mark.parametrize("version, verdict", [("2.3.1", "fail"), ("1.13.0+cpu", "fail"), ("2.4.0a0", "pass"), ("2.15.0", "pass"),
                                              ("3.0.0", "pass")])
def test_torch_that_is_too_old_is_found(monkeypatch, version, verdict):
    monkeypatch.setattr(doctor.metadata, "version", lambda _name: version)
    said = [{"version": version, "gpus": 2}, {"plain": [1.0], "prepared": [1.0]}]
    monkeypatch.setattr(doctor, "_ask", lambda _program, _seconds: doctor.Answer(said))
    found = doctor.check_torch()
    assert [check.id for check in found] == ["torch", "gpu", "training"]
    assert found[0].verdict == verdict and ("upgrade" in found[0].fix) == (verdict == "fail")
    if verdict == "pass":
        assert found[1].verdict == "warn" and "torch sees 2" in found[1].found


def test_torch_that_is_missing_is_found(monkeypatch):
    def missing(name):
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", missing)
    found = doctor.check_torch()
    assert found[0].fix == "pip install torch" and [check.verdict for check in found] == ["fail", "skip", "skip"]


def test_python_that_is_too_old_is_found():
    assert doctor.check_python((3, 9, 18))[0].verdict == "fail"
    assert doctor.check_python((3, 10, 0))[0].verdict == "pass"


def test_package_of_another_version_is_found(monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", lambda _name: "0.0.1")
    found = only(doctor.check_library(), "package")
    assert found.verdict == "warn" and "0.0.1" in found.found


def test_losses_that_are_not_those_of_torch_fail():
    right, wrong = ([{"plain": [2.0, 1.0], "prepared": [2.0, last]}] for last in (1.0 + 1e-7, 1.0 + 1e-5))
    assert doctor.judge_training(doctor.Answer(right)).verdict == "pass"
    found = doctor.judge_training(doctor.Answer(wrong))
    assert found.verdict == "fail" and "1.0e-05" in found.found


def test_process_that_dies_or_hangs_is_told():
    assert "signal 9" in doctor._ask("import os; os.kill(os.getpid(), 9)", 30).problem
    assert "within 0.1 s" in doctor._ask("import time; time.sleep(60)", 0.1).problem
    assert doctor._ask("raise ValueError('why')", 30).problem == "ValueError: why"


def test_check_that_breaks_is_told_and_the_others_are_made(monkeypatch):
    def check_broken():
        raise KeyError("x")

    monkeypatch.setattr(doctor, "CHECKS", (check_broken, doctor.check_python))
    checks = doctor.run()
    assert [check.id for check in checks] == ["broken", "python"] and "KeyError" in checks[0].found
    assert doctor.exit_code(checks) == doctor.UNHEALTHY and "1 pass, 0 warn, 1 fail, 0 skip" in doctor.as_text(checks)


def test_wrong_use_of_the_command_is_told():
    assert run().returncode == 2 and run("doctor", "--wrong").returncode == 2
    done = run("status", GEMINID_DAEMON="", PATH="/nowhere")
    assert done.returncode == 4 and "geminictl is not in this installation" in done.stderr and "Traceback" not in done.stderr


def test_other_commands_are_those_of_geminictl():
    if _programs.find("geminictl") is None:
        pytest.skip("geminictl is not built")
    done = run("--version")
    assert done.returncode == 0 and done.stdout.strip()
