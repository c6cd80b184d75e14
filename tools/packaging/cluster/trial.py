"""Tests deploy/kubernetes/daemonset on a real cluster: started, used by jobs, killed, hung, replaced, removed."""

import json
import os
import signal

from tools.packaging import machine

SPACE = "geminid"
# The name in the images and in the overlay of the trial.
TRAINER = "geminid-trainer"
# Three probes, ten seconds apart, and the grace time of a hung daemon: see daemonset.yaml.
LONGEST_UNNOTICED_SECONDS = 110


def expect(what, holds, seen=""):
    if not holds:
        raise machine.Failed(f"{what}: {seen}")
    print(f"  {what}", flush=True)


def write_overlay(folder, daemonset):
    """Writes the DaemonSet for a node with little memory and without a network of pods."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "geminid.textproto").write_text(
        'config_version: 1\nmetrics_listen: "0.0.0.0:9464"\nhost_memory: "256MiB"\n'
        'device { index: 0 kind: "host" memory: "64MiB" }\ntenant_by: "cgroup"\nsocket_mode: "0666"\n'
        'quotas { tenant: "cgroup:/kubepods" host_memory: "128MiB" device_memory: "32MiB" }\n')
    resources = {"requests": {"cpu": "100m", "memory": "450Mi"}, "limits": {"memory": "450Mi"}}
    patch = [{"op": "add", "path": "/spec/template/spec/hostNetwork", "value": True},
             {"op": "replace", "path": "/spec/template/spec/containers/0/resources", "value": resources}]
    (folder / "kustomization.yaml").write_text(json.dumps({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": SPACE,
        "resources": [os.path.relpath(daemonset, folder)],
        "configMapGenerator": [{"name": "geminid", "behavior": "replace", "files": ["geminid.textproto"]}],
        "patches": [{"target": {"kind": "DaemonSet", "name": "geminid"}, "patch": json.dumps(patch)}]}))
    return folder


def job(name, version, steps):
    """Returns a job of two ranks that train through the node's daemon, in a pod without other permissions."""
    container = {
        "name": "train", "image": f"{TRAINER}:{version}",
        "args": ["--text=/usr/share/common-licenses/GPL-3", "--model=gpt2-tiny", "--ranks=2", f"--steps={steps}",
                 "--device-memory=8MiB", "--progress=lines"],
        "resources": {"requests": {"cpu": "100m", "memory": "400Mi"}, "limits": {"memory": "400Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "geminid", "mountPath": "/run/geminid"}, {"name": "temporary", "mountPath": "/tmp"}]}
    pod = {"restartPolicy": "Never", "hostNetwork": True, "automountServiceAccountToken": False,
           "enableServiceLinks": False,
           "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000},
           "containers": [container],
           "volumes": [{"name": "geminid", "hostPath": {"path": "/run/geminid", "type": "Directory"}},
                       {"name": "temporary", "emptyDir": {"sizeLimit": "64Mi"}}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}}}


class Trial:
    def __init__(self, node, overlay, version):
        self.node = node
        self.overlay = overlay
        self.version = version

    # --- looks ---------------------------------------------------------------------------------------

    def daemon_pod(self):
        """Returns the daemon's pod that is not terminating."""
        pods = self.node.get("pods", "-n", SPACE)["items"]
        return next(pod for pod in pods if "deletionTimestamp" not in pod["metadata"])

    def status_of_daemon(self):
        return self.daemon_pod()["status"]["containerStatuses"][0]

    def is_ready(self):
        return self.status_of_daemon()["ready"]

    def daemon_pid(self):
        name = self.status_of_daemon()["containerID"].removeprefix("containerd://")
        for line in self.node.ctr("tasks", "list").splitlines():
            if line.startswith(name):
                return int(line.split()[1])
        raise machine.Failed(f"no task {name}")

    def tenants(self, asking):
        """Returns the tenants that have sessions."""
        said = self.node.kubectl("exec", "-n", "default", f"job/{asking}", "--", "geminictl", "--json", "ls",
                                 "sessions")
        return {session["tenant"] for session in json.loads(said)["sessions"]}

    # --- acts ----------------------------------------------------------------------------------------

    def apply(self, *objects):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.node.kubectl("apply", "--validate=ignore", "-f", "-", input=text)

    def has_ended(self, name, condition):
        conditions = self.node.get("job", name)["status"].get("conditions", [])
        return any(one["type"] == condition and one["status"] == "True" for one in conditions)

    def train(self, name):
        self.apply(job(name, self.version, 20))
        self.node.wait_for(f"the job {name}", lambda: self.has_ended(name, "Complete"))

    def restarted(self, count):
        return self.status_of_daemon()["restartCount"] == count and self.is_ready()

    # --- the trial -----------------------------------------------------------------------------------

    def starts(self):
        self.node.kubectl("apply", "--validate=ignore", "-k", str(self.overlay))
        took = self.node.wait_for("the DaemonSet", self.is_ready)
        expect(f"the daemon of the node is ready {took:.0f} s after it was asked for", True)

    def trains(self):
        self.train("first")
        expect("a pod without any right trains two ranks through the node's socket", True)

    def pods_are_tenants(self):
        names = ["left", "right"]
        self.apply(*[job(name, self.version, 1000000) for name in names])
        self.node.wait_for("the ranks of both", lambda: len(self.tenants("left")) >= 2)
        tenants = self.tenants("left")
        expect("two pods are two tenants, by their control groups",
               len(tenants) == 2 and all(tenant.startswith("cgroup:/kubepods") for tenant in tenants), tenants)
        self.node.kubectl("delete", "job", "--wait=true", *names)

    def is_killed(self):
        os.kill(self.daemon_pid(), signal.SIGKILL)
        took = self.node.wait_for("another daemon", lambda: self.restarted(1))
        expect(f"a killed daemon is ready again after {took:.0f} s", True)
        self.train("second")
        expect("and serves the next job", True)

    def hangs(self):
        os.kill(self.daemon_pid(), signal.SIGSTOP)
        took = self.node.wait_for("another daemon", lambda: self.restarted(2))
        expect(f"a hung daemon is found by its probe, and another is ready after {took:.0f} s",
               took < LONGEST_UNNOTICED_SECONDS)

    def rolls_out(self):
        before = self.daemon_pod()["metadata"]["name"]
        self.node.kubectl("rollout", "restart", "-n", SPACE, "daemonset/geminid")
        took = self.node.wait_for("the new pod", lambda: self.daemon_pod()["metadata"]["name"] != before and
                                  self.is_ready())
        expect(f"a rollout replaces the daemon in {took:.0f} s", True)
        self.train("third")
        expect("and the next job trains", True)

    def goes(self):
        self.node.kubectl("delete", "-n", SPACE, "daemonset/geminid", "--wait=true", "--cascade=foreground")
        self.node.wait_for("its end", lambda: not self.node.get("pods", "-n", SPACE)["items"])
        expect("it ends when it is removed", True)

    def run(self):
        for step in (self.starts, self.trains, self.pods_are_tenants, self.is_killed, self.hangs, self.rolls_out,
                     self.goes):
            step()
