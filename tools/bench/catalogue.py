"""The entries of tools/benchmark: the programs and scripts of tools/bench, the examples of client/examples and other
measurements that the pages quote.

A Google Benchmark program named *_bench.cc, or an example, becomes an entry by itself. It runs with no arguments, and its
times are its figures. Any other source must be in ENTRIES, or unlisted() returns it.
"""

import dataclasses
import pathlib
import re

import results

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOOGLE, JSON, TEXT = "google", "json", "text"
NOT_RUN = {"beside-pytorch": "needs PyTorch, which is no package of this project"}
PROGRAM = re.compile(r"^int main\(|^BENCHMARK_MAIN\(\)", re.MULTILINE)
NUMBER = r"[-+]?[0-9.]+"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A benchmark. `usual` and `smallest` are lists of command lines to run. In them {bin} is the folder of the programs,
    {root} that of the sources, and {text} a text file. `figures`: pairs of a pattern of rows and the names of the figures
    that each of these rows must have. `pattern`: of the rows of TEXT output, with groups named as figures."""

    name: str
    output: str
    usual: tuple
    smallest: tuple
    targets: tuple
    figures: tuple
    pattern: str = ""
    by_default: bool = True  # runs if no names are given
    needs_gpu: bool = False
    needs_namespaces: bool = False


def google(name, *figures, targets=(), usual=(), smallest=("--benchmark_min_time=0.001",), by_default=True):
    program = "{bin}/" + name
    return Entry(name, GOOGLE, ((program, *usual),), ((program, *smallest),), (name, *targets),
                 ((".*", ("real_time",)), *figures), by_default=by_default)


def example(name):
    return Entry(name, TEXT, (("{bin}/" + name,),), (("{bin}/" + name,),), (name, "geminid"), (("0", ("last",)),),
                 pattern=rf"(?s:.*)= (?P<last>{NUMBER})", by_default=False)


def script(name, output, usual, smallest, targets, figures, **more):
    """Returns the entry of a script of tools/bench. `usual` and `smallest` are lists of its arguments."""
    command = ("{root}/tools/bench/" + name, "{bin}")
    return Entry(name, output, tuple((*command, *arguments) for arguments in usual),
                 tuple((*command, *arguments) for arguments in smallest), targets, figures, **more)


TRAINER = ("geminid", "geminid-train")
# Measurements that are compared with each other take turns.
IN_TURN = ("--benchmark_enable_random_interleaving=true", "--benchmark_repetitions=9", "--benchmark_min_time=0.2",
           "--benchmark_report_aggregates_only=true")

ENTRIES = [
    google("client_bench", ("BM_(Memcpy|Transfer).*", ("bytes_per_second",)), targets=("geminid",)),
    google("arena_bench"),
    google("addresses_bench", targets=("geminid",)),
    google("operators_bench", (".*", ("use_us", "finish_us", "add_gradient_us")), targets=("geminid",)),
    google("engine_bench", usual=IN_TURN, by_default=False),  # needs 10 GiB
    google("training_bench",
           ("BM_.*", ("limited_tokens_per_second", "unlimited_tokens_per_second", "same_work_tokens_per_second",
                      "over_unlimited", "over_same_work", "stall_share", "host_bytes_per_parameter",
                      "state_over_device_memory")), targets=TRAINER),
    google("disk_bench", (".*", ("bytes_per_second",))),
    google("optimizer_bench", (".*", ("ratio", "GBps", "base_GBps", "Gparam", "B_param"))),
    google("model_kernels_bench", ("BM_MatmulOfFloat/.*", ("of_fp32",)), ("BM_MatmulOfLibrary/.*", ("of_library",)),
           ("BM_MatmulOfCopies/.*", ("of_copies",)),
           ("BM_(Matmul/|Attention).*", ("FLOP/s",)),
           ("BM_(LayerNorm|RmsNorm|Gelu|Swiglu|Rotary|Embedding|Cross).*", ("bytes_per_second",))),
    google("collectives_bound_bench", (".*", ("of_bound", "over_tcp", "bytes_per_second"))),
    google("collectives_bench", (".*", ("bytes_per_second",))),
    google("pipeline_bench", (".*", ("predicted", "without_link", "over_predicted", "over_1f1b", "over_1f1b_predicted",
                                     "bubble", "bubble_predicted"))),
    google("tensor_overlap_bench", (".*", ("in_turn", "over_in_turn", "over_longer"))),
    google("planner_bench", ("BM_Plan/.*[0-9]", ("bytes_per_bound", "step_per_bound"))),
    Entry("restart_time", TEXT, (("{bin}/restart_time",),), (("{bin}/restart_time", "2", "256", "1"),),
          ("restart_time", "geminid-holder"), (("0", ("kills", "p50", "p99", "longest")),),
          pattern=rf"(?P<kills>\d+) kills, .* p50 (?P<p50>{NUMBER}) ms, p99 (?P<p99>{NUMBER}) ms, longest "
                  rf"(?P<longest>{NUMBER}) ms", by_default=False),
    Entry("large_batch", TEXT, (("{bin}/large_batch",),), (("{bin}/large_batch",),), ("large_batch",),
          (("[0-3]", ("batch", "steps", "peak_rate", "first_loss", "last_loss", "ratio")),),
          pattern=r"(?P<optimizer>LAMB|LARS)" + "".join(
              rf" +(?P<{name}>{NUMBER})" for name in ("batch", "steps", "peak_rate", "first_loss", "last_loss", "ratio")),
          by_default=False),
    Entry("ticket_bench", JSON, (("{bin}/ticket_bench",),),
          (("{bin}/geminid-with-double", "--memory", "512", "{bin}/ticket_bench", "--chunk", "1", "--rounds", "1",
            "--milliseconds", "10"),), ("ticket_bench", "geminid", "geminid-agent"),
          (("rows/.*", ("tickets_bytes_per_second", "plain_bytes_per_second", "ratio")),), by_default=False, needs_gpu=True),
    Entry("host_collectives", JSON, (("{bin}/host_collectives", "all-reduce", "float32", "64", "5"),),
          (("{bin}/host_collectives", "all-reduce", "float32", "1", "1"),), ("host_collectives",),
          ((r"[01]/seconds", ("0",)),), by_default=False),
    script("collectives-over-hosts", JSON,
           [("--json", "--operation", operation, "--dtype", dtype, "--hosts", hosts, "--ranks", ranks)
            for operation, dtype, hosts, ranks in (
                ("all-reduce", "float32", "2", "2"), ("all-reduce", "float32", "2", "4"),
                ("all-reduce", "float32", "3", "2"), ("all-reduce", "bfloat16", "2", "2"),
                ("all-gather", "float32", "2", "2"), ("reduce-scatter", "float32", "2", "2"))],
           [("--json", "--ranks", "1", "--megabytes", "1", "--rounds", "1")], ("host_collectives",),
           (("", ("speedup",)), ("(hosts_and_ranks|tcp_alone)", ("received_bytes",)),
            ("(hosts_and_ranks|tcp_alone)/seconds", ("0",))), by_default=False, needs_namespaces=True),
    script("checkpoint-cost", JSON, [("--json",)],
           [("--json", "--model", "gpt2-tiny", "--every", "2", "--saves", "1", "--pairs", "1", "--gigabytes", "0.02")],
           TRAINER, (("", ("checkpoint_bytes",)), ("steps_per_second/(saving|plain)", ("0",)),
                     ("resume_over_reading", ("0",))), by_default=False),
    script("host-memory", JSON, [("--json",)], [("--json", "--models", "gpt2-tiny", "--device-memory", "4MiB")], TRAINER,
           (("rows/.*", ("parameters", "after_the_step", "in_the_backward_pass")),), by_default=False),
    script("largest_model", JSON, [("--json",)],
           [("--json", "--host-limit", "6MiB", "--device-memory", "4MiB", "--hidden", "128", "--heads", "2", "--context", "16")],
           (*TRAINER, "geminictl"), (("rows/.*", ("layers", "forecast_layers", "parameters", "host_bytes")),),
           by_default=False),
    script("world-sizes", JSON, [("--json",)], [("--json", "--model", "gpt2-tiny", "--steps", "2", "--sizes", "1,2")],
           TRAINER, (("losses/[0-9]+", ("0", "1")),), by_default=False),
    script("idle-daemon", JSON, [("--json",)], [("--json", "--seconds", "1")], ("geminid",),
           (("", ("seconds", "resident_bytes")),), by_default=False),
    script("warm-up", JSON, [("--json", "--text", "{text}")],
           [("--json", "--text", "{text}", "--model", "gpt2-tiny", "--seeds", "1", "--short", "2", "--long", "2", "--steps",
             "3", "--watched", "3")],
           TRAINER, (("seeds/[0-9]+", ("last_loss",)),), by_default=False),
    Entry("sim-validate", JSON, (("{root}/tools/sim-validate", "--json", "--bin", "{bin}", "--links", "250MB/s", "--pairs", "3",
                                  "--states", "host,streamed,disk"),),
          (("{root}/tools/sim-validate", "--json", "--bin", "{bin}", "--models", "gpt2-tiny", "--memory", "4MiB", "--links",
            "250MB/s", "--states", "host,streamed,disk", "--steps", "2", "--reference-steps", "4"),
           ("{root}/tools/sim-validate", "--json", "--bin", "{bin}", "--models", "gpt2-tiny", "--memory", "4MiB", "--links",
            "250MB/s", "--ranks", "2", "--steps", "2", "--reference-steps", "4")),
          (*TRAINER, "geminictl", "geminid-sim", "optimizer_bench", "disk_bench", "collectives_bench"),
          (("rows/[0-9]+", ("measured", "simulated", "bound", "in_order", "simulated_over_measured", "measured_over_bound")),
           ("rows/0", ("forecast",)), ("calibrations/.*", ("computation_seconds", "updates_per_second"))), by_default=False),
    Entry("compare-meshes", JSON, (("{root}/tools/compare-meshes", "--json", "--text", "{text}"),),
          (("{root}/tools/compare-meshes", "--json", "--text", "{text}", "--model", "gpt2-tiny", "--steps", "2", "--mesh",
            "data=2"),), TRAINER, (("runs/.*", ("first_loss", "last_loss", "seconds")),), by_default=False),
]


def sources(root=ROOT):
    """Returns each program and script of tools/bench, and each example, by name."""
    found = {}
    for path in sorted((root / "tools/bench").iterdir()):
        if path.suffix == ".cc" and PROGRAM.search(path.read_text()):
            found[path.stem] = path
        elif path.suffix == "" and path.is_file() and path.read_bytes().startswith(b"#!"):
            found[path.name] = path
    for path in sorted((root / "client/examples").glob("*.cc")):
        found[path.stem] = path
    return found


def entries(root=ROOT):
    """Returns the entries by name."""
    found = {entry.name: entry for entry in ENTRIES}
    for name, path in sources(root).items():
        if path.parent.name == "examples":
            found.setdefault(name, example(name))
        elif name.endswith("_bench"):
            found.setdefault(name, google(name))
    return found


def unlisted(root=ROOT):
    """Returns the sources that no entry runs."""
    return [path.relative_to(root).as_posix() for name, path in sources(root).items()
            if name not in entries(root) and name not in NOT_RUN]


def read(entry, text):
    """Returns the rows in the output of one of an entry's commands."""
    if entry.output == GOOGLE:
        return results.google_rows(text)
    return results.json_rows(text) if entry.output == JSON else results.text_rows(text, entry.pattern)
