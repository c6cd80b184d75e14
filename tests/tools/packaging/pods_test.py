#!/usr/bin/env python3
"""pods_test.py ROOT: each rule for pods finds its violation, and no other."""

import copy
import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True

from tools.packaging import pods  # noqa: E402

LOCKED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def probe(page):
    return {"httpGet": {"path": page, "port": "metrics"}}


def good():
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 60,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [{
            "name": "geminid", "image": "geminid:0.1.0", "restartPolicy": "Always",
            "args": ["--host-memory=1GiB", "--device=host:0=512MiB"], "ports": [{"containerPort": 9464}],
            "startupProbe": probe("/readyz"), "readinessProbe": probe("/readyz"), "livenessProbe": probe("/livez"),
            "resources": {"requests": {"memory": "1600Mi"}, "limits": {"memory": "1600Mi"}},
            "securityContext": LOCKED, "volumeMounts": [{"mountPath": "/run/geminid"}]}],
        "containers": [{
            "name": "train", "image": "registry/geminid-trainer:0.1.0", "securityContext": LOCKED,
            "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}}]}


def put(pod, path, value):
    """Returns a copy of the pod with that value at the path. None: the path is removed."""
    pod = copy.deepcopy(pod)
    at = pod
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return pod


VIOLATIONS = [
    (["securityContext", "runAsNonRoot"], False, "runAsNonRoot"),
    (["securityContext", "seccompProfile"], None, "seccompProfile"),
    (["automountServiceAccountToken"], None, "token"),
    (["terminationGracePeriodSeconds"], 5, "terminationGracePeriodSeconds"),
    (["initContainers", 0, "image"], "geminid:latest", "names no release"),
    (["containers", 0, "image"], "geminid-trainer", "names no release"),
    (["containers", 0, "securityContext"], {}, "capabilities"),
    (["containers", 0, "resources", "limits", "memory"], "2Gi", "requests"),
    (["containers", 0, "resources"], None, "memory limit"),
    (["initContainers", 0, "restartPolicy"], None, "no sidecar"),
    (["initContainers", 0, "livenessProbe"], probe("/healthz"), "livenessProbe"),
    (["initContainers", 0, "startupProbe"], None, "startupProbe"),
    (["initContainers", 0, "ports"], [], "ports"),
    (["initContainers", 0, "volumeMounts"], [], "/run/geminid"),
    (["initContainers", 0, "args"], ["--host-memory=1GiB"], "hands out"),
    (["initContainers", 0, "args"], ["--host-memory=1GiB", "--device=host:0=600MiB"], "less than what it hands out"),
    (["initContainers", 0, "image"], "registry/other:0.1.0", "no container of it is the daemon"),
]


class Rules(unittest.TestCase):
    def test_good_pod_breaks_none(self):
        self.assertEqual(list(pods.problems_of(good())), [])

    def test_each_violation_is_found(self):
        for path, value, words in VIOLATIONS:
            found = "\n".join(pods.problems_of(put(good(), path, value)))
            self.assertIn(words, found, path)

    def test_caps_in_a_configuration_count_too(self):
        pod = put(good(), ["initContainers", 0, "args"], ["--config=/etc/x/g.textproto"])
        pod["volumes"] = [{"configMap": {"name": "c"}}]
        text = 'host_memory: "1GiB"\ndevice { index: 0 memory: "%s" }\nquotas { tenant: "*" host_memory: "9GiB" }'
        self.assertEqual(list(pods.problems_of(pod, {"c": {"g.textproto": text % "512MiB"}})), [])
        self.assertIn("less than", "".join(pods.problems_of(pod, {"c": {"g.textproto": text % "600MiB"}})))

    def test_pods_of_all_kinds_are_looked_at(self):
        bad = put(good(), ["terminationGracePeriodSeconds"], 5)
        job = {"template": {"spec": bad}}
        for resource in ({"kind": "Pod", "metadata": {"name": "p"}, "spec": bad},
                         {"kind": "Job", "metadata": {"name": "p"}, "spec": job},
                         {"kind": "JobSet", "metadata": {"name": "p"}, "spec": {"replicatedJobs": [
                             {"name": "j", "template": {"spec": job}}]}}):
            self.assertEqual(len(list(pods.problems_of_all([resource]))), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
