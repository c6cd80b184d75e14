"""Makes the tables of the pages, as Markdown, from measurements: TABLES has a function for each entry with tables.

Each function takes `runs`, the rows of each of the entry's commands, and returns the lines of one table or more.
"""

import re
import statistics

GRIDS = {"1d-sequence": "1D-sequence", "2d": "2D", "2.5d": "2.5D, d = 2", "3d": "3D"}
NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def table(head, rows):
    return ["| " + " | ".join(map(str, head)) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def find(rows, pattern):
    """Returns the only row whose name matches."""
    found = [values for name, values in rows.items() if re.fullmatch(pattern, name)]
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows fit {pattern}")
    return found[0]


def sizes_of(rows, argument):
    """Returns the values of a benchmark's argument in ascending order."""
    found = (re.search(rf"/{argument}:(\d+)", name) for name in rows)
    return sorted({int(match[1]) for match in found if match})


def nanoseconds(row, field="cpu_time"):
    return row[field] * NANOSECONDS[row.get("time_unit", "ns")]


def targets_of_client(runs):
    rows, = runs
    lease = nanoseconds(find(rows, "BM_LeaseAndRelease"))
    attach = nanoseconds(find(rows, "BM_AttachToFirstChunk.*"), "real_time") / 1e6
    answer = nanoseconds(find(rows, "BM_RequestAndAnswer.*"), "real_time") / 1e3

    def rate(name, mib):
        return find(rows, f"BM_{name}/{mib}/real_time")["bytes_per_second"]

    def ratio(name, mib, base):
        ours, plain = rate(name, mib), rate("Memcpy", base)
        return f"{ours / plain:.2f} ({ours / 1e9:.2f} of {plain / 1e9:.2f} GB/s)"

    return table(("what", "measured"), [
        ("lease acquire + release of a resident chunk", f"{lease:.1f} ns"),
        ("copies under tickets over raw memcpy, chunks of 64 MiB", ratio("TransferUnderTicket", 64, 64)),
        ("the same, 16 MiB, 8 in flight, over memcpy of 64 MiB", ratio("TransfersInParallel", 16, 64)),
        ("the same, 16 MiB, one alone", ratio("TransferUnderTicket", 16, 16)),
        ("attach to first chunk usable", f"{attach:.0f} ms"),
        ("a request to the daemon and its answer", f"{answer:.0f} us")])


def arenas(runs):
    rows, = runs
    widths = [("1 GiB", 1), ("64 GiB", 64), ("2 TiB", 2048), ("16 TiB", 16384)]
    places = [f"{nanoseconds(find(rows, f'BM_FreeAndPlace/GiB:{gib}')):.0f} ns" for _, gib in widths]
    return [*table(("", "time"), [("acquire and release of the words of a resident chunk",
                                   f"{nanoseconds(find(rows, 'BM_LeaseWords')):.1f} ns")]),
            *table(("arena of 1024 extents", *(name for name, _ in widths)), [("free one, place one of its size", *places)])]


def stable_addresses(runs):
    rows, = runs

    def cell(name, field):
        return " / ".join(f"{nanoseconds(find(rows, name.format(stable)), field) / 1e3:.3g}" for stable in (0, 1)) + " us"

    comes = "BM_UseOfWhatComes/stable:{}/KiB:%d/real_time"
    names = (("on the device already", "BM_UseOfWhatIsThere/stable:{}"), ("comes and goes, 64 KiB", comes % 64),
             ("comes and goes, 1 MiB", comes % 1024), ("comes and goes, 16 MiB", comes % 16384))
    return table(("operator on one fp32 parameter, read once", "processor time of the caller, without / with",
                  "time, without / with"),
                 [(title, cell(name, "cpu_time"), cell(name, "real_time")) for title, name in names])


def full_daemon(runs):
    rows, = runs
    sessions = sizes_of(rows, "sessions")
    four = [nanoseconds(find(rows, rf"BM_FourRequests/sessions:{n}\b.*")) / 1e3 for n in sessions]
    turn = [nanoseconds(find(rows, rf"BM_Schedule/sessions:{n}\b.*")) / 1e3 for n in sessions]
    return table(("sessions of 65,536 chunks", *sessions),
                 [("four requests, with an eviction", *(f"{time:.2f} us" for time in four)),
                  ("over one session's", *(f"{time / four[0]:.2f}" for time in four)),
                  ("end of a copy, and whose turn is next", *(f"{time:.2f} us" for time in turn))])


def fifth_of_the_memory(runs):
    rows, = runs
    titles = (("auto", "auto"), ("auto, link paced to 2 GB/s each way", "auto_with_a_link_of_2_gigabytes_per_second"),
              ("placement cpu", "placement_cpu"))
    out = []
    for title, name in titles:
        row = find(rows, f"BM_LimitedOverUnlimited/{name}/.*")
        out.append((title, *(f"{row[f'{kind}_tokens_per_second']:.0f}" for kind in ("limited", "unlimited")),
                    f"{row['over_unlimited']:.2f}", f"{row['same_work_tokens_per_second']:.0f}",
                    f"{row['over_same_work']:.2f}", f"{row['stall_share']:.1%}".replace("%", " %")))
    return table(("", "tokens/s limited", "unlimited", "ratio", "unlimited, recomputing too", "ratio", "waiting"), out)


ADAMW = (("split master, bf16 gradient, in place", "SplitInPlace<bf16>"),
         ("split master, fp32 gradient, in place", "SplitInPlace<fp32>"),
         ("split master, bf16 gradient, out of place", "SplitOutOfPlace<bf16>"),
         ("split master, fp32 gradient, out of place", "SplitOutOfPlace<fp32>"),
         ("fp32 master, in place", "MasterInPlace"), ("fp32 master, out of place", "MasterOutOfPlace"),
         ("bf16 moments, split master, in place", "HalfMomentsInPlace"))
OTHER_KERNELS = (("norm and overflow, bf16", "Norm<bf16>"), ("norm and overflow, fp32", "Norm<fp32>"),
                 ("accumulation of bf16", "Accumulate<bf16>"))
FORMS = (("bf16 in and out over fp32 master, per byte, in place", "SplitInPlace<bf16>/vs_MasterInPlace"),
         ("the same, out of place", "SplitOutOfPlace<bf16>/vs_MasterOutOfPlace"),
         ("AdamW over its unfused form", "MasterInPlace/vs_unfused"),
         ("held to AVX2 over the best, split master, in place", "SplitOnAvx2InPlace/vs_best"),
         ("the same, out of place", "SplitOnAvx2OutOfPlace/vs_best"),
         ("held to AVX2 over the best, fp32 master, in place", "MasterOnAvx2InPlace/vs_best"),
         ("the same, out of place", "MasterOnAvx2OutOfPlace/vs_best"),
         ("out of place over in place, split master", "SplitOutOfPlace/vs_in_place"),
         ("out of place over in place, fp32 master", "MasterOutOfPlace/vs_in_place"),
         ("bf16 moments over fp32 ones, parameters/s, in place", "HalfMomentsInPlace/vs_fp32_moments"),
         ("the same, out of place", "HalfMomentsOutOfPlace/vs_fp32_moments"))


def optimizer(runs):
    rows, = runs

    def both(name, figure, digits):
        return ", ".join(f"{find(rows, re.escape(name) + f'/threads:{threads}/.*')[figure]:.{digits}f}" for threads in (1, 2))

    def against_traffic(kernels):
        return [(title, f"{find(rows, re.escape(name) + '/vs_traffic/threads:1/.*')['B_param']:.0f}",
                 both(name + "/vs_traffic", "GBps", 1), both(name + "/vs_traffic", "ratio", 2)) for title, name in kernels]

    stream = ("copy; triad", "8; 12", "; ".join(both(name, "GBps", 1) for name in ("Copy", "Triad")), "")
    cache = [name.split("/")[0] for name in rows if "/in_cache/" in name]
    return [*table(("AdamW", "bytes per parameter", "GB/s, 1 and 2 threads", "of traffic, 1 and 2 threads"),
                   against_traffic(ADAMW)),
            *table(("other kernels", "bytes per element", "GB/s, 1 and 2 threads", "of traffic, 1 and 2 threads"),
                   [*against_traffic(OTHER_KERNELS), stream]),
            *table(("one form over another", "ratio, 1 and 2 threads"),
                   [(title, both(name, "ratio", 2)) for title, name in FORMS]),
            *table(("arithmetic alone, on 4096 elements in the cache, 1 thread", "GB/s", "1e9 parameters/s"),
                   [(name, *(f"{find(rows, re.escape(name) + '/in_cache/.*')[figure]:.{digits}f}"
                             for figure, digits in (("GBps", 1), ("Gparam", 2)))) for name in cache])]


def products(runs):
    rows, = runs
    titles = (("forward, 768 to 3072", "forward"), ("gradient of the input", "input_gradient"),
              ("gradient of the weight", "weight_gradient"), ("the same, added to what is there", "weight_gradient_accumulated"),
              ("logits, 768 to 50257", "logits"), ("a third of a wider matrix", "third"), ("forward of 64 tokens", "few_tokens"))
    types = ("fp32", "bf16")
    return table(("product", "fp32's time over bf16's", *(f"{of}, GFLOP/s" for of in types),
                  *(f"{of} over one call of oneDNN" for of in types),
                  "bf16 over copies and one call"),
                 [(title, f"{find(rows, f'BM_MatmulOfFloat/{name}')['of_fp32']:.2f}",
                   *(f"{find(rows, f'BM_Matmul/{name}/{of}')['FLOP/s'] / 1e9:.1f}" for of in types),
                   *(f"{find(rows, f'BM_MatmulOfLibrary/{name}/{of}')['of_library']:.2f}" for of in types),
                   f"{find(rows, f'BM_MatmulOfCopies/{name}')['of_copies']:.2f}")
                  for title, name in titles])


def of_bound(runs):
    rows, = runs
    small, large = sizes_of(rows, "bytes")

    def figures(number):
        row = {size: find(rows, f"BM_OfBound/collective:{number}/bytes:{size}/.*") for size in (large, small)}
        return row[large]["of_bound"], row[large]["over_tcp"], row[small]["over_tcp"]

    return table(("", f"{large >> 20} MiB: bound / time", f"{large >> 20} MiB: TCP / time",
                  f"{small >> 10} KiB: TCP / time"),
                 [(title, *(f"{figure:.2f}" for figure in figures(number)))
                  for number, title in enumerate(("all-gather", "reduce-scatter", "all-reduce"))])


def collectives(runs):
    rows, = runs
    titles = (("shared memory: all-gather", "shm_all_gather"), ("shared memory: reduce-scatter", "shm_reduce_scatter"),
              ("shared memory: all-reduce", "shm_all_reduce"), ("TCP over loopback: all-gather", "tcp_all_gather"))
    most = sizes_of(rows, "bytes")[-1]

    def rate(name, ranks):
        return find(rows, f"RunRanks/{name}/ranks:{ranks}/bytes:{most}/.*")["bytes_per_second"] / 1e9

    return table((f"GB/s of result, {most >> 20} MiB of bf16", "2 ranks", "4 ranks"),
                 [(title, *(f"{rate(name, ranks):.1f}" for ranks in (2, 4))) for title, name in titles])


def over_hosts(runs):
    out = []
    for rows in runs:
        job = rows[""]
        layered, flat = (statistics.median(rows[f"{way}/seconds"].values()) for way in ("hosts_and_ranks", "tcp_alone"))
        out.append((f"{job['operation']}, {job['dtype']}", f"{job['hosts']:.0f} x {job['ranks_per_host']:.0f}",
                    f"{layered:.2f}", f"{flat:.2f}", f"{job['speedup']:.1f}"))
    return table(("", "hosts x ranks", "over hosts and ranks, s", "over TCP alone, s", "times as fast"), out)


def pipelines(runs):
    rows, = runs
    kinds = ("1F1B", "interleaved, 2 parts", "ZBV", "1F1B, backwards in one")
    out = []
    for link, message in ((0, "no link"), (25, "0.25 of a forward"), (50, "0.5 of a forward")):
        for number, kind in enumerate(kinds):
            row = find(rows, f"BM_Pipeline/kind:{number}/link:{link}/.*")
            milliseconds = nanoseconds(row, "real_time") / 1e6
            out.append((kind, message, f"{row['predicted'] * 1e3:.0f}", f"{milliseconds:.0f}", f"{row['bubble_predicted']:.2f}",
                        f"{row['bubble']:.2f}", f"{row['over_1f1b_predicted']:.2f}", f"{row['over_1f1b']:.2f}"))
    return table(("", "a message", "predicted, ms", "measured, ms", "bubble, predicted", "bubble", "over 1F1B, predicted",
                  "over 1F1B"), out)


def cut_layers(runs):
    rows, = runs
    out = []
    for exchanges in (25, 50, 100):
        for number, title in enumerate(GRIDS.values()):
            row = find(rows, f"BM_Backward/grid:{number}/exchanges:{exchanges}/.*")
            out.append((title, f"{exchanges / 100:g}", f"{nanoseconds(row, 'real_time') / 1e6:.0f}",
                        f"{row['in_turn'] * 1e3:.0f}", f"{row['over_in_turn']:.2f}"))
    return table(("", "exchanges over products", "measured, ms", "in turn, ms", "over in turn"), out)


def time_to_plan(runs):
    rows, = runs
    found = [match for match in (re.fullmatch(r"BM_Plan/(.*)/(\d+)", name) for name in rows) if match]
    plans = list(dict.fromkeys(match[1] for match in found))
    lengths = sorted({int(match[2]) for match in found})
    return table(("chunks", *(f"{length:,}" for length in lengths)),
                 [(name, *(f"{nanoseconds(find(rows, f'BM_Plan/{re.escape(name)}/{length}')) / 1e6:.0f}"
                                             for length in lengths)) for name in plans])


def large_batches(runs):
    rows, = runs
    return table(("", "batch", "steps", "peak rate", "last loss", "ratio"),
                 [(row["optimizer"], f"{row['batch']:.0f}", f"{row['steps']:.0f}", f"{row['peak_rate']:.4f}",
                   f"{row['last_loss']:.4f}", f"{row['ratio']:.3f}") for row in rows.values()])


def restarts(runs):
    row = runs[0]["0"]
    return table(("what", "measured"), [(f"service back after `kill -9` of the daemon, {row['kills']:.0f} kills",
                                         f"p50 {row['p50']:.0f} ms, p99 {row['p99']:.0f} ms")])


def checkpoints(runs):
    rows, = runs
    costs, resumes = (list(rows[name].values()) for name in ("cost", "resume_over_reading"))
    listed = lambda values, form: ", ".join(format(value, form) for value in values)
    return table(("what", "measured"), [
        ("cost of a save every 20 steps, of the steps per second, %",
         f"{listed([100 * cost for cost in costs], '+.1f')}: median {100 * statistics.median(costs):.1f}"),
        (f"resume of {rows['']['checkpoint_bytes'] / 1e9:.2f} GB over reading its files",
         f"{listed(resumes, '.2f')}: median {statistics.median(resumes):.2f}")])


def host_memory(runs):
    return table(("model", "parameters", "device memory", "after the step", "in the backward pass"),
                 [(f"`{row['model']}`", f"{row['parameters']:,.0f}", row["device_memory"], f"{row['after_the_step']:.3f}",
                   f"{row['in_the_backward_pass']:.3f}") for name, row in runs[0].items() if name.startswith("rows/")])


def largest_models(runs):
    return table(("host memory", "disk", "layers", "parameters, million", "forecast, million", "host memory taken, MiB",
                  "disk taken, MiB"),
                 [(row["host_limit"], "yes" if row["disk"] else "no", f"{row['layers']:.0f}",
                   f"{row['parameters'] / 1e6:.1f}", f"{row['forecast_parameters'] / 1e6:.1f}",
                   f"{row['host_bytes'] / 2**20:,.0f}", f"{row['state_disk_bytes'] / 2**20:,.0f}")
                  for name, row in runs[0].items() if name.startswith("rows/")])


def world_sizes(runs):
    losses = {name.split("/")[1]: list(row.values()) for name, row in runs[0].items() if name.startswith("losses/")}
    steps = range(len(next(iter(losses.values()))))
    return table(("ranks", *(f"loss of step {step + 1}" for step in steps)),
                 [(ranks, *(f"{loss:.5f}" for loss in values)) for ranks, values in losses.items()])


def idle(runs):
    row = runs[0][""]
    share = 100 * row["processor_seconds"] / row["seconds"]
    return table(("what", "measured"), [("idle daemon", f"{share:.2f} % of a processor over {row['seconds']:.0f} s, "
                                                        f"{row['resident_bytes'] / 1e6:.0f} MB resident")])


def warm_ups(runs):
    seeds = {name.split("/")[1]: row for name, row in runs[0].items() if name.startswith("seeds/")}
    return table(("seed", "warm-up 10", "warm-up 50", "last loss with 50"),
                 [(seed, *(f"{row[figure]:.2f}" for figure in ("jump_with_short", "jump_with_long", "last_loss")))
                  for seed, row in seeds.items()])


def meshes(runs):
    return table(("mesh", "first loss", "last loss", "largest difference"),
                 [(f"`{row['mesh']}`", f"{row['first_loss']:.6f}", f"{row['last_loss']:.6f}", f"{row['difference']:.1e}")
                  for name, row in runs[0].items() if name.startswith("runs/")])


TABLES = {"client_bench": targets_of_client, "arena_bench": arenas, "addresses_bench": stable_addresses,
          "engine_bench": full_daemon, "training_bench": fifth_of_the_memory, "optimizer_bench": optimizer,
          "model_kernels_bench": products, "collectives_bound_bench": of_bound, "collectives_bench": collectives,
          "collectives-over-hosts": over_hosts, "pipeline_bench": pipelines, "tensor_overlap_bench": cut_layers,
          "planner_bench": time_to_plan, "large_batch": large_batches, "restart_time": restarts, "checkpoint-cost": checkpoints,
          "host-memory": host_memory, "largest_model": largest_models, "world-sizes": world_sizes, "idle-daemon": idle, "warm-up": warm_ups,
          "compare-meshes": meshes}


def of(name, runs):
    """Returns the lines of an entry's tables; none if it has no tables."""
    return TABLES[name](runs) if name in TABLES else []
