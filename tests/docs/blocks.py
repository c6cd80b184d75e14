#!/usr/bin/env python3
"""blocks.py ROOT BIN PAGE: runs the shell blocks of a page in order in one shell, like a reader. Exits with 1 if one fails.

A new folder has replacements for the page's files: texts, shards of tokens, a model. Runs are scaled down (SMALLER).
LEFT_OUT names the blocks that are not run, with the reason. An entry of LEFT_OUT without a block is a failure, too.
"""

import json
import os
import pathlib
import re
import shlex
import signal
import struct
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```([\w+]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELLS = ("", "sh", "bash")
# The begin of a block of commands. All other blocks are output of a program.
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(?:geminid|geminid-train|geminictl|python3?|pip|torchrun|tools/\S+|export|for|printf|kill|tar|"
                     r"apt|c\+\+|\w+=\S*)(?:\s|$)")
STEPS = 2
SMALLER = (
    (r"--steps \d+(?=[^\n]*&\s*$)", "--steps 1000000"),      # runs until the page ends
    (r"--steps (?!1000000\b)\d+", f"--steps {STEPS}"),
    (r"--save-every \d+", "--save-every 1"),
    (r"--epochs \d+", "--epochs 1"),
    (r"--tokens \d+", "--tokens 4"),
    (r"--validation-batches \d+", "--validation-batches 2"),
    (r"(--device-memory \d+)GiB", r"\1MiB"),
    (r"--model gpt2-small", "--model gpt2-tiny"),
    (r"--model gpt2-20m(?!.* --device-memory 8MiB)", "--model gpt2-3m"),  # this run must not fit
    (r"--model (llama|mixtral)-20m", r"--model \1-tiny"),
    (r"--context 256", "--context 32"),
    (r"step-\d{9}", f"step-{STEPS:09}"),
    (r"explain \d+/\d+", "explain 1/0"),
    (r"(ls jobs) --watch 2", r"\1 --watch 1 --times 2"),
    (r"geminictl doctor", "geminictl doctor >/dev/null || test $? = 1"),  # this machine may have any problem
    (r"^geminid &", "geminid --metrics-listen off &"),
    # A reader types this when the run trains and accepts requests.
    (r"^(geminictl scale mine 4)$", r"timeout 60 bash -c 'until \1; do sleep 0.2; done'"),
    (r"--socket /run/geminid/geminid.sock", "--socket $GEMINID_SOCKET"),
)
LASTS = re.compile(r"--(?:steps|epochs|eval-only|resume)\b|geminid-train generate")
JOB = "geminid-train --text FILE --model gpt2-tiny --ranks 1 --steps {steps} --job mine --quiet &\n"
RUNNING = "geminictl wait job mine --for running --at-most 60"
# Commands to run before the block that begins with these words.
BEFORE = {
    ("README.md", "geminid-train --text FILE_OR_FOLDER"): JOB.format(steps=1000000) + RUNNING,
    ("docs/geminictl.md", "geminictl wait daemon"): JOB.format(steps=20),
    # A job has a trace once its first plan is made.
    ("docs/geminictl.md", "geminictl trace export"):
        JOB.format(steps=1000000) + RUNNING + "; until geminictl trace save mine/0 -o early.json; do sleep 0.1; done",
    ("docs/tutorial.md", "geminictl status"): "geminictl wait daemon --at-most 60; until geminictl explain 1/0; do sleep 0.1; done",
}
# Blocks whose text says that they end with another code than 0.
ENDS_WITH = {("docs/tutorial.md", "geminid-train --text $text --model gpt2-20m --ranks 2 --batch 4 --steps 4"): 7}
LEFT_OUT = {
    ("README.md", "pip install"): "tools/newcomer does it",
    ("README.md", "tools/quickstart"): "builds the project",
    ("README.md", "tools/test"): "runs this",
    ("docs/tutorial.md", "tools/build"): "builds the project",
    ("docs/tutorial.md", "geminid-train --text $text --model gpt2-3m --ranks 2 --batch 8 --steps 100000"):
        "kills ranks of all runs on the machine; tests/tools/trainer has deaths",
    ("docs/training.md", "python -m geminid"): "needs a tokenizer from a hub; tests/python has one of its own",
    ("docs/training.md", "kill -TERM"): "lines of several shells",
    ("docs/training.md", "export GEMINID_SOCKET"): "needs torchrun",
    ("docs/training.md", "geminid-train --model gpt2-tiny --text FILE --ranks 2 --job mine"):
        "needs two hosts; tests/tools/trainer/migration_test.cc has them",
    ("docs/training.md", "printf 'node-a"): "needs two hosts; tests/tools/trainer/scaling_hosts_test.cc has them",
    ("docs/how-to.md", "printf"): "needs two hosts; tests/tools/trainer/hosts_test.cc has them",
    ("docs/checkpoints.md", "tools/bench"): "a measurement",
    ("docs/geminictl.md", "geminictl ls jobs --json | jq"): "needs jq",
}


def matching(table, page, block):
    return next((key for key in table if key[0] == page and block.startswith(key[1])), None)


def blocks_of(text):
    """Returns a page's blocks of commands."""
    return [block for language, block in FENCE.findall(text) if language in SHELLS and COMMAND.match(block)]


def scaled(block):
    """Returns the block scaled down to the time of a test."""
    lines = []
    for line in block.replace("\\\n", " ").splitlines():
        line = line.split(" #")[0].rstrip()
        for pattern, smaller in SMALLER:
            line = re.sub(pattern, smaller, line)
        if "geminid-train " in line and not LASTS.search(line):
            ends = "&" if line.endswith("&") else ""
            line = line.removesuffix("&").rstrip() + f" --steps {1000000 if ends else STEPS} {ends}".rstrip()
        lines.append(line)
    return "\n".join(lines) + "\n"


def script_of(page, text):
    """Returns the page as a shell program, and its keys of LEFT_OUT."""
    parts, left_out = [], []
    for block in blocks_of(text):
        key = matching(LEFT_OUT, page, block)
        if key is not None:
            left_out.append(key)
            continue
        first = block.splitlines()[0]
        before = matching(BEFORE, page, block)
        parts.append(f"echo == {shlex.quote(first)}\n" + (BEFORE[before] + "\n" if before else ""))
        end = matching(ENDS_WITH, page, block)
        if end is None:
            parts.append(scaled(block))
        else:
            code = ENDS_WITH[end]
            parts.append(f"code=0\n(\n{scaled(block)}) || code=$?\n"
                         f"test $code = {code} || {{ echo it ended with $code instead of {code}; exit 1; }}\n")
    return "set -e\n" + "".join(parts), left_out


def stale(page, left_out):
    """Returns this page's entries of LEFT_OUT that match no block."""
    return [words for name, words in LEFT_OUT if name == page and (name, words) not in left_out]


def shard(tokens):
    return struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) + struct.pack(f"<{len(tokens)}H", *tokens)


def images(count, side):
    """A safetensors file of images of bytes, with labels."""
    pixels = bytes(i * i % 251 for i in range(count * 3 * side * side))
    labels = struct.pack(f"<{count}q", *(i % 10 for i in range(count)))
    header = json.dumps({
        "images": {"dtype": "U8", "shape": [count, 3, side, side], "data_offsets": [0, len(pixels)]},
        "labels": {"dtype": "I64", "shape": [count], "data_offsets": [len(pixels), len(pixels) + len(labels)]},
    }).encode()
    return struct.pack("<Q", len(header)) + header + pixels + labels


def prepare(folder, environment):
    """Makes the files that pages name in `folder`."""
    words = "In the beginning were words, and each word was followed by another.\n" * 400
    for name in ("FILE", "FILE_OR_FOLDER", "corpus.txt"):
        (folder / name).write_text(words)
    tokens = [i * i % 251 for i in range(4000)]
    for name in ("fineweb10B/fineweb_train_000001.bin", "mine.bin", "val.bin"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(shard(tokens))
    (folder / "train.safetensors").write_bytes(images(40, 32))
    # The page starts its own daemon, so that its sessions are counted from 1.
    environment = {name: value for name, value in environment.items() if name != "GEMINID_SOCKET"}
    for flags in ("--text FILE --model gpt2-tiny --export gpt2",
                  "--images train.safetensors --model vit-tiny --export vit-base-patch16-224"):
        subprocess.run(["geminid-train", *flags.split(), "--steps", "1", "--quiet"], cwd=folder, env=environment, check=True,
                       timeout=120)


def run(page, text, programs):
    """Returns the problems of the page; empty: none."""
    script, left_out = script_of(page, text)
    wrong = [f"{page}: LEFT_OUT has a block that begins with '{words}', and the page has none" for words in stale(page, left_out)]
    if "== " not in script:
        return wrong
    with tempfile.TemporaryDirectory(prefix="geminid-page-") as name:
        folder = pathlib.Path(name)
        environment = {**os.environ, "PATH": f"{pathlib.Path(programs).resolve()}:{os.environ['PATH']}", "text": "FILE",
                       "GEMINID_SOCKET": str(folder / "daemon" / "geminid.sock")}
        (folder / "daemon").mkdir(mode=0o700)
        daemon = subprocess.Popen(["geminid", "--metrics-listen", "off"], env=environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True)
        page_runs = None
        try:
            subprocess.run(["geminictl", "wait", "daemon", "--at-most", "60"], env=environment, check=True, capture_output=True)
            prepare(folder, environment)
            with open(folder / "said", "w+", encoding="utf-8", errors="replace") as said:
                page_runs = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                             stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
                code = page_runs.wait(timeout=600)
                said.seek(0)
                if code != 0:
                    wrong.append(f"{page}: the last block ends with {code}:\n{said.read()[-3000:]}")
        finally:
            for started in (page_runs, daemon):
                if started is not None:
                    end(started)
    return wrong


def end(started):
    """Ends the process and all processes left in its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(started.pid, number)
        except ProcessLookupError:
            break
        try:
            started.wait(timeout=10)
        except subprocess.TimeoutExpired:
            pass


def main():
    root, programs, page = sys.argv[1:]
    wrong = run(page, (pathlib.Path(root) / page).read_text(encoding="utf-8"), programs)
    print("\n".join(wrong) or f"{page}: its blocks run")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
