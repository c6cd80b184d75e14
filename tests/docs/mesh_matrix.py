#!/usr/bin/env python3
"""mesh_matrix.py ROOT BIN: checks that docs/parallelism.md and geminid-train agree on which mesh works with which flag.
Prints each cell that differs; exits with 1 if any.

geminid-train checks its flags before it opens the text. So with a missing text a refused mesh causes an error about
the mesh, and any other mesh an error about the text. Nothing is trained.
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys

PAGE = "docs/parallelism.md"
HEAD = "| feature |"
TEXT = "/nonexistent/text"
# The mesh of each column, by the column's name.
MESHES = {
    "data, zero": ["data=2", "data=2,zero=2", "data=2,zero=1"],
    "pipeline": ["pipeline=2"],
    "interleaved": ["pipeline=interleaved:2:chunks=2"],
    "zbv": ["pipeline=zbv:2"],
    "tensor=1d": ["tensor=1d:2"],
    "other tensor": ["tensor=1d-sequence:2", "tensor=2d:4", "tensor=2.5d:size=8:depth=2", "tensor=3d:8"],
    "ulysses": ["sequence=ulysses:2"],
    "ring": ["sequence=ring:2"],
    "expert": ["expert=2"],
}
LLAMA = ["--model", "llama-tiny"]
MIXTRAL = ["--model", "mixtral-tiny"]
VIT = ["--model", "vit-tiny"]  # reads images
# The flags of each row, by the row's begin. None: no flag decides it.
ROWS = {
    "`--model` gpt2": [LLAMA, ["--model", "gpt2-tiny"]],
    "`--model` mistral": [["--model", "mistral-tiny"]],
    "`--model` qwen2": [["--model", "qwen3-tiny"], ["--model", "pythia-tiny"]],
    "`--model` bert": [["--model", "bert-tiny"]],
    "`--model` vit": [VIT],
    "`--model` mixtral": [[*MIXTRAL, "--balance-loss", "0"]],
    "`--dtype fp32`": [["--dtype", "fp32"], ["--dtype", "bf16"]],
    "`--device cuda`": [["--device", "cuda"]],
    "`--activations recompute`": [["--activations", "recompute"]],
    "`--activations keep`": [["--activations", "keep"]],
    "`--activations offload`": [["--activations", "offload"]],
    "`--optimizer muon`": [["--optimizer", "muon"]],
    "`--optimizer`": [["--optimizer", name] for name in ("lamb", "lars", "adafactor", "came", "lion")],
    "`--loss-scale`": [["--loss-scale", "dynamic"]],
    "`--update backward`": [["--update", "backward", "--clip-norm", "0", "--accumulate", "1"]],
    "`--dropout`": [["--dropout", "0.1"]],
    "`--freeze`": [["--freeze", "*norm*"]],
    "`--lora-rank`": [["--lora-rank", "4"]],
    "`--balance-loss`": [[*MIXTRAL, "--balance-loss", "0.02"],
                         [*MIXTRAL, "--balance-loss", "0", "--expert-capacity", "1.25"]],
    "`--validation`": [["--validation", "0.1"]],
    "`--save`": [["--save", "run"]],
    "`--load`": [["--export", "exported"]],
    "`--restarts`": [["--restarts", "1"]],
    "another number of ranks": None,
    "several hosts": None,
    "gives its arena": None,
    "is planned": None,
}


def cells_of(page):
    """Yields (row, column, whether it works) of each cell of the table."""
    table = re.search(rf"^{re.escape(HEAD)}.*\n\|[-|]+\|\n((?:\|.*\|\n)+)", page, re.MULTILINE)
    if table is None:
        raise ValueError(f"there is no table that begins with {HEAD}")
    columns = [word.strip() for word in table[0].splitlines()[0].strip("|").split("|")][1:]
    for line in table[1].splitlines():
        row, *cells = [word.strip() for word in line.strip("|").split("|")]
        if len(cells) != len(columns):
            raise ValueError(f"{len(cells)} cells in the row: {row}")
        for column, cell in zip(columns, cells):
            if not re.fullmatch(r"(yes|no)( \(\d+\))?", cell):
                raise ValueError(f"neither yes nor no: {cell}")
            yield row, column, cell.startswith("yes")


def commands_of(row, column):
    """Returns the flags of each command that a cell describes."""
    known = next((name for name in ROWS if row.startswith(name)), None)
    if known is None:
        raise ValueError(f"unknown row: {row}")
    if column not in MESHES:
        raise ValueError(f"unknown column: {column}")
    for flags in ROWS[known] or ():
        for mesh in MESHES[column]:
            usual = [*MIXTRAL, "--balance-loss", "0"] if column == "expert" else LLAMA
            model = [] if "--model" in flags else usual
            steps = [] if "--accumulate" in flags else ["--accumulate", "2"]
            yield [*model, *flags, *steps, "--layers", "4", "--batch", "16", "--parallel", mesh]


def violations_of(page, refusal_of):
    """Yields violations. refusal_of(flags): returns the reason for which geminid-train refuses them, or None."""
    cells = [(cell, flags) for cell in cells_of(page) for flags in commands_of(*cell[:2])]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        refusals = list(pool.map(refusal_of, [flags for _, flags in cells]))
    for ((row, column, works), flags), refusal in zip(cells, refusals):
        if works != (refusal is None):
            said = "yes" if works else "no"
            yield f"{PAGE}: {row}, {column}: {said}, but {' '.join(flags)} is {refusal or 'taken'}"


def refusal_by(program):
    def refusal_of(flags):
        data = "--images" if VIT[1] in flags else "--text"
        done = subprocess.run([program, data, TEXT, *flags], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 0:
            raise ValueError(f"it trained: {' '.join(flags)}")
        return None if TEXT in done.stderr else done.stderr.strip()

    return refusal_of


def main():
    page = (pathlib.Path(sys.argv[1]) / PAGE).read_text()
    found = list(violations_of(page, refusal_by(str(pathlib.Path(sys.argv[2]) / "geminid-train"))))
    for violation in found:
        print(violation)
    print(f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
