"""What a prepared model does with its memory, in words."""


def _bytes(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024


def explain(model):
    """The plan as a table: device memory, what moves in a step beside what must, and stalls."""
    keeper = model._geminid_keeper
    said = keeper.engine.statistics()
    plan = said["plan"]
    rows = [
        ("parameters", f"{said['parameters']:,}"),
        ("units", f"{len(keeper.units)} ({keeper.granularity})"),
        ("model state of this rank", _bytes(said["model_state_bytes"])),
        ("device memory", _bytes(said["arena_bytes"])),
        ("most of it used", _bytes(said["peak_total_bytes"])),
        ("loaded so far", _bytes(said["host_to_device_bytes"])),
        ("evicted so far", _bytes(said["device_to_host_bytes"])),
        ("planned per micro-batch", _bytes(plan["planned_transfer_bytes"])),
        ("everything fits", "yes" if plan["everything_fits"] else "no"),
        ("plans made", str(plan["plans_made"])),
        ("stalls", f"{said['stall_seconds']:.3f} s"),
    ]
    width = max(len(name) for name, _ in rows)
    table = "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)
    return f"{table}\n\n{plan['explanation']}".rstrip()
