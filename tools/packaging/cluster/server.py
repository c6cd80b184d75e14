"""Builds the programs of a Kubernetes cluster from Debian's source package: no binary package has the server."""

import os
import pathlib
import re
import shutil

from tools.packaging import machine

# The components to build.
COMPONENTS = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"]
GENERATED = "pkg/generated/openapi"


def build(folder):
    """Builds the programs and returns their folder. The first time takes ten minutes and two gigabytes of disk."""
    binaries = folder / "bin"
    if all((binaries / name).exists() for name in COMPONENTS):
        return binaries
    source = folder / "go/src/k8s.io/kubernetes"
    if not source.exists():
        _unpack(folder, source)
    binaries.mkdir(parents=True, exist_ok=True)
    _generate_api(folder, source)
    for name in COMPONENTS:
        print(f"  building {name}", flush=True)
        part = binaries / f"part-{name}"
        _go(folder, source, "build", "-o", str(part), f"./cmd/{name}")
        part.rename(binaries / name)
    shutil.rmtree(folder / "go-cache", ignore_errors=True)
    return binaries


def _go(folder, source, *arguments):
    environment = dict(os.environ, GO111MODULE="off", GOPATH=str(folder / "go"), CGO_ENABLED="0",
                       GOCACHE=str(folder / "go-cache"), GOFLAGS="-ldflags=-s")
    return machine.run(["go", *arguments], cwd=source, env=environment)


def _unpack(folder, source):
    """Unpacks the source with separate package lists, because the machine's may lack sources."""
    print("  fetching the source", flush=True)
    apt = folder / "apt"
    shutil.rmtree(apt, ignore_errors=True)
    (apt / "parts").mkdir(parents=True)
    (apt / "lists/partial").mkdir(parents=True)
    for file in pathlib.Path("/etc/apt/sources.list.d").glob("debian*.sources"):
        text = re.sub(r"^Types:.*$", "Types: deb-src", file.read_text(), flags=re.M)
        (apt / "parts" / file.name).write_text(text)
    lines = pathlib.Path("/etc/apt/sources.list")
    if lines.exists():
        (apt / "parts/own.list").write_text(re.sub(r"^deb\b", "deb-src", lines.read_text(), flags=re.M))
    own = ["apt-get", "-q", "-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={apt / 'parts'}",
           "-o", f"Dir::State::lists={apt / 'lists'}", "-o", "APT::Sandbox::User=root"]
    machine.run([*own, "update"])
    machine.run([*own, "source", "kubernetes"], cwd=apt)
    unpacked = [path for path in apt.glob("kubernetes-*") if path.is_dir()]
    if len(unpacked) != 1:
        raise machine.Failed(f"the source package of kubernetes unpacked to {unpacked}")
    source.parent.mkdir(parents=True, exist_ok=True)
    unpacked[0].rename(source)


def _generate_api(folder, source):
    """Generates the server's API description, which the source package lacks."""
    if (source / GENERATED / "zz_generated.openapi.go").exists():
        return
    print("  generating the API's description", flush=True)
    generator = folder / "bin/openapi-gen"
    _go(folder, source, "build", "-o", str(generator), "./vendor/k8s.io/kube-openapi/cmd/openapi-gen")
    packages = set()
    for top in ("pkg", "staging/src", "vendor/k8s.io", "cmd"):
        for file in (source / top).rglob("*.go"):
            if "// +k8s:openapi-gen=" in file.read_text(errors="replace"):
                name = str(file.parent.relative_to(source))
                packages.add(re.sub(r"^(staging/src|vendor)/", "", name))
    own = {name if name.startswith("k8s.io/") else f"k8s.io/kubernetes/{name}" for name in packages}
    environment = dict(os.environ, GO111MODULE="off", GOPATH=str(folder / "go"), GOCACHE=str(folder / "go-cache"))
    machine.run([str(generator), "-i", ",".join(sorted(own)), "-p", f"k8s.io/kubernetes/{GENERATED}",
                 "-O", "zz_generated.openapi", "-o", str(folder / "go/src"), "-h", "/dev/null",
                 "-r", "/dev/null"], cwd=source, env=environment)
