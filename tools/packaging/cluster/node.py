"""A Kubernetes cluster of one node in separate namespaces. It changes no port, file or process of the machine.

The exception are the control groups that the kubelet makes; they are removed at the end.
"""

import json
import os
import pathlib
import secrets
import shutil
import subprocess
import time

from tools.packaging import machine

# An address in this network namespace, which only the cluster uses.
ADDRESS = "10.99.0.1"
SERVER = "https://127.0.0.1:6443"
NODE = "node"
PATIENCE_SECONDS = 180
# The kubelet sets these switches of the whole machine.
SYSCTLS = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
           "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"]
OWN_FOLDERS = ["/run", "/var/lib/kubelet", "/var/lib/cni", "/etc/cni", "/var/log/pods", "/var/log/containers"]
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def in_namespaces(command):
    """Returns the command line that runs a command in the namespaces. All of its processes end with it."""
    return ["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child",
            "--mount-proc", *command]


def isolate(folder):
    """Prepares the namespaces: separate folders, kernel switches and network."""
    for path in map(pathlib.Path, OWN_FOLDERS):
        path.mkdir(parents=True, exist_ok=True)
        machine.run(["mount", "-t", "tmpfs", "none", str(path)])
    # Pods use the node's network. The kubelet requires a configured pod network all the same.
    network = pathlib.Path("/etc/cni/net.d/10-none.conf")
    network.parent.mkdir()
    network.write_text(json.dumps({"cniVersion": "0.4.0", "name": "none", "type": "loopback"}))
    copies = folder / "sysctl"
    copies.mkdir(parents=True, exist_ok=True)
    for name in SYSCTLS:
        copy = copies / name.replace("/", ".")
        copy.write_text((pathlib.Path("/proc/sys") / name).read_text())
        machine.run(["mount", "--bind", str(copy), f"/proc/sys/{name}"])
    machine.run(["ip", "link", "set", "lo", "up"])
    machine.run(["ip", "link", "add", "va", "type", "veth", "peer", "name", "vb"])
    machine.run(["ip", "address", "add", f"{ADDRESS}/24", "dev", "va"])
    for end in ("va", "vb"):
        machine.run(["ip", "link", "set", end, "up"])
    machine.run(["ip", "route", "add", "default", "via", "10.99.0.2"])


class Node:
    """A context with a running node. `binaries` has the server's programs and kubectl."""

    def __init__(self, folder, binaries, kubectl):
        self.folder = folder
        self.binaries = binaries
        self.kubectl_program = kubectl
        self.processes = []
        self.token = secrets.token_hex(16)

    def __enter__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            self._start_server()
            self._start_node()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # Containers end first, because their shims outlive containerd.
        for name, process in reversed(self.processes):
            if name == "kubelet":
                process.kill()
                process.wait()
                self._end_containers()
            elif process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        _remove_groups()

    def start(self, name, *command):
        log = open(self.folder / f"{name}.log", "w")
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.processes.append((name, process))

    def kubectl(self, *arguments, **options):
        return machine.run([str(self.kubectl_program), "--kubeconfig", str(self.folder / "kubeconfig"), *arguments],
                           **options)

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def ctr(self, *arguments):
        return machine.run(["ctr", "-n", "k8s.io", *arguments])

    def wait_for(self, what, condition):
        """Waits until the condition is true, and ignores errors meanwhile. Returns the seconds."""
        began = time.monotonic()
        last = ""
        while time.monotonic() < began + PATIENCE_SECONDS:
            self._expect_all_alive()
            try:
                if condition():
                    return time.monotonic() - began
            except (machine.Failed, KeyError, IndexError, StopIteration) as failure:
                last = failure
            time.sleep(0.2)
        raise machine.Failed(f"waited {PATIENCE_SECONDS} s for {what}: {last}")

    def _expect_all_alive(self):
        for name, process in self.processes:
            if process.poll() is not None:
                log = (self.folder / f"{name}.log").read_text()[-3000:]
                raise machine.Failed(f"{name} has ended with exit code {process.returncode}\n{log}")

    def _start_server(self):
        certificates = self.folder / "certificates"
        certificates.mkdir()
        key = certificates / "accounts.key"
        machine.run(["openssl", "genrsa", "-out", str(key), "2048"])
        (self.folder / "tokens").write_text(f'{self.token},admin,admin,"system:masters"\n')
        self._write_kubeconfig()
        self.start("etcd", "etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", "http://127.0.0.1:2379",
                   "--advertise-client-urls", "http://127.0.0.1:2379", "--listen-peer-urls", "http://127.0.0.1:2380")
        self.start("apiserver", self.binaries / "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
                   "--kubelet-preferred-address-types=InternalIP", f"--advertise-address={ADDRESS}",
                   "--secure-port=6443", f"--cert-dir={certificates}",
                   f"--token-auth-file={self.folder / 'tokens'}", "--authorization-mode=RBAC",
                   "--service-account-issuer=https://cluster", f"--service-account-key-file={key}",
                   f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.98.0.0/24",
                   "--allow-privileged=true")
        self.wait_for("the API server", lambda: self.kubectl("get", "--raw", "/readyz") == "ok")
        kubeconfig = f"--kubeconfig={self.folder / 'kubeconfig'}"
        self.start("controller-manager", self.binaries / "kube-controller-manager", kubeconfig,
                   f"--service-account-private-key-file={key}", "--leader-elect=false")
        self.start("scheduler", self.binaries / "kube-scheduler", kubeconfig, "--leader-elect=false")

    def _write_kubeconfig(self):
        (self.folder / "kubeconfig").write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": SERVER, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "it", "user": {"token": self.token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]}))

    def _start_node(self):
        state = self.folder / "containerd"
        (self.folder / "containerd.toml").write_text(
            f'version = 2\nroot = "{state}/root"\nstate = "/run/containerd"\n'
            '[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "docker.io/library/pause:1"\n'
            "restrict_oom_score_adj = true\ndisable_hugetlb_controller = true\n")
        self.start("containerd", "containerd", "--config", self.folder / "containerd.toml")
        self.wait_for("containerd", lambda: self.ctr("version"))

    def start_kubelet(self):
        """Starts the kubelet. Its images must exist."""
        (self.folder / "kubelet.yaml").write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "cgroupDriver": "cgroupfs", "failSwapOn": False,
            "enforceNodeAllocatable": [], "makeIPTablesUtilChains": False, "resolvConf": "",
            "evictionHard": {"memory.available": "100Mi"}}))
        self.start("kubelet", self.binaries / "kubelet", f"--kubeconfig={self.folder / 'kubeconfig'}",
                   f"--config={self.folder / 'kubelet.yaml'}", "--container-runtime=remote", f"--node-ip={ADDRESS}",
                   "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
                   f"--hostname-override={NODE}")
        return self.wait_for("the node", lambda: any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in self.get("node", NODE)["status"]["conditions"]))

    def _end_containers(self):
        try:
            for container in self.ctr("containers", "list", "-q").split():
                machine.try_run(["ctr", "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", container])
            machine.wait_for("the containers' end", lambda: "RUNNING" not in self.ctr("tasks", "list"))
        except machine.Failed as failure:
            print(f"  {failure}")


def _remove_groups():
    for group in CGROUPS.glob("*/kubepods"):
        for folder, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass  # a process still uses the group; the next run uses it again
