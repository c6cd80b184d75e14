"""python -m geminid doctor [--json]: whether this machine can train with Geminid, and the fix for what it lacks.

Each check is "pass", "warn" (it works, but worse than it could), "fail" (it does not) or "skip" (not judged).
What could end the process, such as loading a library, runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

from geminid import _programs

__all__ = ["Check", "as_json", "as_text", "exit_code", "run"]

OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 4)
OK, UNHEALTHY = 0, 8  # docs/exit_codes.md
_SESSION_SECONDS, _TORCH_SECONDS, _PROGRAM_SECONDS = 60, 300, 30
_INSTALL = "pip install --force-reinstall geminid"
# geminictl's checks of a daemon that must run already. They are left out: this doctor may start a daemon.
_OF_A_DAEMON = ("socket", "attach_socket", "daemon_version", "daemon_ledger", "daemon_devices", "daemon_capacity",
                 "daemon_survival")
_IDS_OF_TORCH = ("torch", "gpu", "training")

_ASK_LIBRARY = """
import json, geminid
from geminid import _library
print(json.dumps({"version": geminid.version(), "path": _library.LIB.dll._name}))
"""
_ASK_SESSION = """
import json, geminid.session
print(json.dumps(geminid.session.Session(1 << 20, timeout_seconds=30.0).describe()))
"""
# The second line is printed only if the import succeeded.
_ASK_TORCH = """
import json, os, torch
os.environ.pop("GEMINID_DISABLE", None)  # or there were nothing to compare
print(json.dumps({"version": torch.__version__, "gpus": torch.cuda.device_count()}), flush=True)
import geminid.torch
torch.set_num_threads(1)
def train(prepared):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if prepared:
        model, optimizer = geminid.torch.prepare(model, optimizer, device_memory="1MiB")
    losses = []
    for step in range(3):
        loss = (model(torch.ones(4, 16)).double() - 3).pow(2).mean()  # far from zero
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
print(json.dumps({"plain": train(False), "prepared": train(True)}))
"""


@dataclass(frozen=True)
class Check:
    """The name of a check, its verdict, a detail, and the fix if the check did not pass."""
    id: str
    verdict: str
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Answer:
    """The result of a separate process: its lines of JSON, and its ending if it failed."""
    said: list[dict[str, Any]]
    problem: str = ""


def _ask(program: str, seconds: float) -> Answer:
    try:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Answer([], f"no answer within {seconds:g} s")
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0:
        return Answer(said)
    if done.returncode < 0:
        return Answer(said, f"ended by signal {-done.returncode}")
    return Answer(said, _exception_in(done.stderr) or f"exit code {done.returncode}")


def _exception_in(text: str) -> str:
    """Returns the message at the end of a traceback, in one line."""
    lines: list[str] = []
    for line in reversed([line for line in text.splitlines() if line.strip()]):
        if line.startswith(" ") or line.startswith("Traceback"):
            break
        lines.insert(0, line)
    return " ".join(lines)


def _numbers(version: str) -> tuple[int, ...]:
    """Returns (2, 4) for "2.4.1+cpu"."""
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in version.split(".")[:2])


def check_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> list[Check]:
    found = f"Python {'.'.join(map(str, version))}, {sys.executable}"
    if version[:2] >= OLDEST_PYTHON:
        return [Check("python", "pass", found)]
    return [Check("python", "fail", found, "use Python 3.10 or newer")]


def check_library() -> list[Check]:
    answer = _ask(_ASK_LIBRARY, _SESSION_SECONDS)
    if answer.problem:
        return [Check("library", "fail", answer.problem,
                      f"{_INSTALL}, or set GEMINID_LIBRARY to libgeminid_c.so.1 or its folder")]
    found = answer.said[-1]
    return [Check("library", "pass", f"{found['version']}, {found['path']}"), _package(found["version"])]


def _package(library: str) -> Check:
    try:
        installed = metadata.version("geminid")
    except metadata.PackageNotFoundError:
        return Check("package", "pass", f"not installed: {os.path.dirname(__file__)}")
    if installed == library:
        return Check("package", "pass", installed)
    return Check("package", "warn", f"the package is {installed}, and the library {library}",
                 f"unset GEMINID_LIBRARY, or {_INSTALL}")


def check_programs() -> list[Check]:
    found, missing = [], []
    for name in _programs.NAMES:
        path = _programs.find(name)
        if path is None:
            missing.append(name)
            continue
        try:
            subprocess.run([path, "--help"], capture_output=True, timeout=_PROGRAM_SECONDS, check=True)
            found.append(path)
        except (OSError, subprocess.SubprocessError) as problem:
            return [Check("programs", "fail", f"{path} does not start: {problem}",
                          f"{_INSTALL}; the file system of the package must allow programs (no noexec)")]
    if missing:
        return [Check("programs", "warn", f"{', '.join(missing)}: not in the package, beside $GEMINID_DAEMON or on PATH",
                      f"{_INSTALL}, or build them and set GEMINID_DAEMON to the daemon")]
    return [Check("programs", "pass", ", ".join(found))]


def check_session() -> list[Check]:
    """Connects to the daemon, or starts a daemon as training does, and allocates 1 MiB of a device."""
    answer = _ask(_ASK_SESSION, _SESSION_SECONDS)
    socket = os.environ.get("GEMINID_SOCKET")
    if answer.problem:
        fix = (f"GEMINID_SOCKET is {socket}: start the daemon that serves it, or unset it to have one started" if socket
               else "set GEMINID_DAEMON to the program geminid, or GEMINID_SOCKET to the socket of a running daemon")
        return [Check("daemon", "fail", answer.problem, fix), Check("device", "skip", "no daemon")]
    found = answer.said[-1]
    device = found["device"]
    described = f"{device['kind']} device '{device['name']}', {device['capacity_bytes'] / 2**30:.3g} GiB"
    return [Check("daemon", "pass", f"serves {found['socket']}"), Check("device", "pass", described)]


def check_torch() -> list[Check]:
    """Imports torch, and trains a small model with Geminid and without."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return _torch_failed("not installed", "pip install torch")
    if _numbers(version) < OLDEST_TORCH:
        return _torch_failed(f"{version}; geminid.torch needs 2.4 or newer", "pip install --upgrade torch")
    answer = _ask(_ASK_TORCH, _TORCH_SECONDS)
    if not answer.said:
        return _torch_failed(f"{version} cannot be imported: {answer.problem}", "pip install --force-reinstall torch")
    return [Check("torch", "pass", version), _gpu(answer.said[0]["gpus"]), judge_training(answer)]


def _torch_failed(found: str, fix: str) -> list[Check]:
    return [Check("torch", "fail", found, fix)] + [Check(name, "skip", "no torch") for name in _IDS_OF_TORCH[1:]]


def _gpu(count: int) -> Check:
    if count == 0:
        return Check("gpu", "pass", "none that torch can use: parameters are on the host device")
    return Check("gpu", "warn", f"torch sees {count}, and geminid.torch does not use them yet",
                 "expect the speed of the host device")


def judge_training(answer: Answer) -> Check:
    """Compares the losses with Geminid and without."""
    if answer.problem:
        return Check("training", "fail", answer.problem, "fix what failed above; if nothing failed, report this line")
    losses = answer.said[-1]
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses["prepared"], losses["plain"]))
    if worst > 1e-6:
        return Check("training", "fail", f"losses are {worst:.1e} from those of plain torch", "report this line")
    return Check("training", "pass", f"3 steps of a small model have the losses of plain torch within {worst:.0e}")


def check_environment() -> list[Check]:
    if os.environ.get("GEMINID_DISABLE") == "1":
        return [Check("environment", "warn", "GEMINID_DISABLE=1: prepare returns its arguments unchanged",
                      "unset GEMINID_DISABLE to train with Geminid")]
    names = sorted(name for name in os.environ if name.startswith("GEMINID_"))
    return [Check("environment", "pass", ", ".join(f"{name}={os.environ[name]}" for name in names) or "no GEMINID_ variable")]


def check_machine() -> list[Check]:
    """Checks kernel, limits and free memory with `geminictl doctor`."""
    program = _programs.find("geminictl")
    if program is None:
        return [Check("machine", "skip", "geminictl is missing, which checks kernel, limits and memory", _INSTALL)]
    done = subprocess.run([program, "doctor", "--json"], capture_output=True, text=True, timeout=_PROGRAM_SECONDS, check=False)
    if done.returncode not in (OK, UNHEALTHY):
        return [Check("machine", "fail", done.stderr.strip() or f"{program} doctor: exit code {done.returncode}", _INSTALL)]
    return [Check(check["id"], check["verdict"], check["found"], check["fix"])
            for check in json.loads(done.stdout)["checks"] if check["id"] not in _OF_A_DAEMON]


CHECKS: tuple[Callable[[], list[Check]], ...] = (check_python, check_library, check_programs, check_environment,
                                                 check_machine, check_session, check_torch)


def _made(check: Callable[[], list[Check]]) -> list[Check]:
    try:
        return check()
    except Exception as problem:  # reported as a failed check, and the other checks still run
        return [Check(check.__name__.removeprefix("check_"), "fail", f"{type(problem).__name__}: {problem}",
                      "report this line")]


def run() -> list[Check]:
    """Runs all checks in order. Takes some seconds: the checks import torch and may start a daemon."""
    return [made for check in CHECKS for made in _made(check)]


def exit_code(checks: list[Check]) -> int:
    """Returns 0, or 8 if a check failed."""
    return UNHEALTHY if any(check.verdict == "fail" for check in checks) else OK


def _counts(checks: list[Check]) -> dict[str, int]:
    return {verdict: sum(check.verdict == verdict for check in checks) for verdict in ("pass", "warn", "fail", "skip")}


def as_json(checks: list[Check]) -> str:
    """Returns the document of `geminictl doctor --json` without the fields about one daemon."""
    return json.dumps({"schema_version": 1, "checks": [asdict(check) for check in checks], **_counts(checks)}, indent=2)


def as_text(checks: list[Check]) -> str:
    """Returns a line for each check with its fix below, and the counts at the end."""
    width = max(len(check.id) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.verdict}  {check.id.ljust(width)}  {check.found}")
        if check.fix:
            lines.append(f"      fix: {check.fix}")
    return "\n".join([*lines, "", ", ".join(f"{count} {verdict}" for verdict, count in _counts(checks).items())])


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0, or 8 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m geminid doctor", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the checks as JSON")
    parsed = parser.parse_args(arguments)
    try:
        checks = run()
    except KeyboardInterrupt:
        return 130
    print(as_json(checks) if parsed.json else as_text(checks))
    return exit_code(checks)
