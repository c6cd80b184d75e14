"""The compared libraries: the loop of each, the packages of its environment, and the devices on which it runs."""

import dataclasses
import difflib
import pathlib

LOOPS = pathlib.Path(__file__).parent / "loops"


@dataclasses.dataclass(frozen=True)
class Peer:
    loop: str
    name: str
    packages: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    why_not: str = ""  # the reason for the other devices
    environment: tuple[tuple[str, str], ...] = ()


_DEEPSPEED = (("DS_BUILD_OPS", "0"), ("DS_ACCELERATOR", "cpu"))
_NO_GPU_FOR_US = "Geminid's adapter for PyTorch has no GPU yet"

PEERS = [
    Peer("plain", "plain torch"),
    Peer("fsdp2", "FSDP2"),
    Peer("fsdp2_offload", "FSDP2, CPUOffloadPolicy"),
    Peer("deepspeed_zero2", "DeepSpeed ZeRO-2, offload", ("deepspeed==0.19.8",), environment=_DEEPSPEED),
    Peer("deepspeed_zero3", "DeepSpeed ZeRO-3, offload", ("deepspeed==0.19.8",), environment=_DEEPSPEED),
    Peer("colossalai_gemini", "Colossal-AI Gemini", ("colossalai==0.5.0",)),
    Peer("trainstream", "TrainStream", ("trainstream==0.4.1",), ("cuda",), "it moves memory between a GPU and the host"),
    Peer("geminid", "Geminid", devices=("cpu",), why_not=_NO_GPU_FOR_US),
    Peer("geminid_resume", "Geminid, resume", devices=("cpu",), why_not=_NO_GPU_FOR_US),
]


def source(loop):
    return (LOOPS / f"{loop}.py").read_text(encoding="utf-8")


def lines_changed(text, plain):
    """Returns the number of lines that are new, gone or different."""
    plain, text = ([line for line in whole.splitlines() if line.strip()] for whole in (plain, text))
    codes = difflib.SequenceMatcher(None, plain, text, autojunk=False).get_opcodes()
    return sum(max(last - first, end - begin) for tag, first, last, begin, end in codes if tag != "equal")
