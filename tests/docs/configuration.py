#!/usr/bin/env python3
"""configuration.py ROOT BIN: docs/configuration.md must name exactly the keys of config.proto, with valid examples.

  1. The rows of its tables are the fields of the messages. A row says "yes" if a reload changes the field.
  2. The flags and variables of its rows are those of the daemon.
  3. geminid --check-config accepts each of its examples.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROW = re.compile(r"^\| `([\w.]+)` \|(.*)\|$", re.MULTILINE)
EXAMPLE = re.compile(r"^```(textproto|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fields_of(proto, message):
    body = re.search(r"^message %s \{(.*?)^\}" % message, proto, re.MULTILINE | re.DOTALL).group(1)
    return re.findall(r"^\s*(?:repeated |optional )?[\w.]+ (\w+) = \d+;", body, re.MULTILINE)


def keys_of(proto):
    keys = fields_of(proto, "Config")
    keys += [f"device.{field}" for field in fields_of(proto, "Device")]
    for field in fields_of(proto, "TenantQuota"):
        keys += ([f"quotas.device.{of}" for of in fields_of(proto, "DeviceQuota")]
                 if field == "device" else [f"quotas.{field}"])
    return set(keys)


def violations_of(page, proto, flags, variables, reloaded):
    """Yields violations. `flags` and `variables`: by key. `reloaded`: the keys that SIGHUP changes."""
    rows = dict(ROW.findall(page))
    keys = keys_of(proto)
    yield from (f"{key} is not in the page" for key in sorted(keys - rows.keys()))
    yield from (f"there is no key {key}" for key in sorted(rows.keys() - keys))
    for key in fields_of(proto, "Config"):
        cells = [cell.strip() for cell in rows.get(key, "").split("|")]
        if len(cells) != 4:
            yield f"{key}: its row has no cell for each column"
            continue
        shown = set(re.findall(r"`(--[\w-]+|GEMINID_\w+)`", cells[1]))
        known = {*flags.get(key, []), *variables.get(key, [])}
        if shown != known:
            yield f"{key}: the page shows {sorted(shown)}, the daemon has {sorted(known)}"
        if (cells[2] == "yes") != (key in reloaded):
            yield f"{key}: the page says '{cells[2]}' of a reload"


def bad_examples(page, geminid):
    examples = EXAMPLE.findall(page)
    if len(examples) < 2:
        yield "there is no example of each format"
    for suffix, text in examples:
        with tempfile.NamedTemporaryFile("w", suffix="." + suffix) as file:
            file.write(text)
            file.flush()
            done = subprocess.run([geminid, "--check-config", "--config", file.name], check=False,
                                  capture_output=True, text=True, timeout=60)
            if done.returncode != 0:
                yield f"an example is refused: {done.stderr}"


def main():
    root, programs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    page = (root / "docs/configuration.md").read_text()
    program = (root / "daemon/main.cc").read_text()
    settings = (root / "daemon/config/settings.cc").read_text()
    flags = {key: [flag] for flag, key in re.findall(r'\{"(--[\w-]+)", "(\w+)"', program)}
    flags["device"] = ["--device"]
    # Clients also read one of the variables. Its name is in a header that both include.
    shared = (root / "proto/shm/daemon_socket.h").read_text()
    name = re.search(r'kSocketVariable\[\] = "(\w+)"', shared).group(1)
    settings = settings.replace("shm::kSocketVariable", f'"{name}"')
    variables = {key: [name] for name, key in re.findall(r'\{"(GEMINID_\w+)", "(\w+)"\}', settings)}
    reload = (root / "daemon/config/reload.cc").read_text()
    reloaded = set(re.search(r"kKeys\[\] = \{(.*?)\}", reload, re.DOTALL).group(1)
                   .replace('"', "").replace(" ", "").replace("\n", "").split(",")) | {"quotas"}
    shares = (root / "daemon/config/tenant_shares.h").read_text()
    reloaded |= set(re.findall(r'= \{\s*"(\w+)",\s*&TenantShares::', shares))
    proto = (root / "proto/geminid/v1/config.proto").read_text()
    found = list(violations_of(page, proto, flags, variables, reloaded))
    found += bad_examples(page, str(programs / "geminid"))
    for violation in found:
        print(violation)
    print(f"{len(keys_of(proto))} keys, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
