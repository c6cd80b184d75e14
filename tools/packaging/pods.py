"""Checks pods beyond the schemas: users and permissions, and that the daemon's limits fit the container's."""

import re

UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
# The daemon's own memory: its tables, plans and traces.
DAEMON_BYTES = 64 * 2**20
METRICS_PORT = 9464
SOCKETS = "/run/geminid"
LEAST_GRACE_SECONDS = 30  # TimeoutStopSec= of the unit


def bytes_of(quantity):
    number, unit = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", str(quantity)).groups()
    return int(number) * UNITS[unit]


def jobs_of(resource):
    """Returns the Jobs that a JobSet makes; none for other resources."""
    if resource["kind"] != "JobSet":
        return []
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{resource['metadata']['name']}-{job['name']}"},
             "spec": job["template"]["spec"]} for job in resource["spec"]["replicatedJobs"]]


def pod_of(resource):
    """Returns the resource's pod, or None."""
    spec = resource.get("spec", {})
    return resource.get("spec") if resource["kind"] == "Pod" else spec.get("template", {}).get("spec")


def containers_of(pod):
    return pod.get("initContainers", []) + pod.get("containers", [])


def is_daemon(container):
    return container["image"].split("/")[-1].split(":")[0] == "geminid" and "command" not in container


def problems_of_all(resources):
    """Returns a line for each problem in rendered resources."""
    texts = {f["metadata"]["name"]: f.get("data", {}) for f in resources if f["kind"] == "ConfigMap"}
    for resource in [one for resource in resources for one in jobs_of(resource) or [resource]]:
        pod = pod_of(resource)
        if pod is None:
            continue
        name = f"{resource['kind']} {resource['metadata']['name']}"
        for problem in problems_of(pod, texts):
            yield f"{name}: {problem}"


def problems_of(pod, configurations=None):
    yield from problems_of_pod(pod)
    for container in containers_of(pod):
        problems = list(problems_of_container(container))
        if is_daemon(container):
            problems += problems_of_daemon(container, pod, configurations or {})
        yield from (f"container {container['name']}: {problem}" for problem in problems)


def problems_of_pod(pod):
    context = pod.get("securityContext", {})
    if not context.get("runAsNonRoot"):
        yield "securityContext.runAsNonRoot is not true"
    if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "there is no seccompProfile"
    if pod.get("automountServiceAccountToken") is not False:
        yield "it is given a service account's token, which nothing here needs"
    if pod.get("terminationGracePeriodSeconds", 0) < LEAST_GRACE_SECONDS:
        yield f"terminationGracePeriodSeconds is less than {LEAST_GRACE_SECONDS}"
    if not any(is_daemon(container) for container in containers_of(pod)):
        yield "no container of it is the daemon"


def problems_of_container(container):
    if not re.search(r":[0-9]+\.[0-9]+\.[0-9]+$|@sha256:[0-9a-f]{64}$", container["image"]):
        yield f"image {container['image']} names no release"
    context = container.get("securityContext", {})
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if not context.get("readOnlyRootFilesystem"):
        yield "its root file system can be written"
    if context.get("capabilities", {}).get("drop") != ["ALL"]:
        yield "it keeps capabilities"
    resources = container.get("resources", {})
    limit, request = (resources.get(kind, {}).get("memory") for kind in ("limits", "requests"))
    if limit is None or limit != request:
        yield f"its memory limit {limit} is not what it requests, {request}"


def caps_of(container, pod, configurations):
    """Returns the bytes that the daemon may hand out."""
    text = " ".join(container.get("args", []))
    found = re.search(r"--config=\S*/(\S+)", text)
    if found:
        maps = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
        text = "".join(configurations.get(name, {}).get(found.group(1), "") for name in maps)
        # The keys in quotas do not concern the whole daemon.
        text = re.sub(r"quotas\s*\{[^}]*\}", "", text)
        sizes = re.findall(r'(?:host_memory|memory):\s*"([^"]+)"', text)
    else:
        sizes = re.findall(r"--host-memory=(\S+)", text) + re.findall(r"host:\d+=([0-9A-Za-z]+)", text)
    return [bytes_of(size) for size in sizes]


def problems_of_daemon(container, pod, configurations):
    ports = [port["containerPort"] for port in container.get("ports", [])]
    if ports != [METRICS_PORT]:
        yield f"its ports are {ports}, not [{METRICS_PORT}]"
    for probe, page in (("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/livez")):
        if container.get(probe, {}).get("httpGet", {}).get("path") != page:
            yield f"its {probe} does not ask {page}"
    if SOCKETS not in [mount["mountPath"] for mount in container.get("volumeMounts", [])]:
        yield f"nothing is mounted at {SOCKETS}"
    caps = caps_of(container, pod, configurations)
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    if len(caps) < 2:
        yield "its configuration says not how much host and device memory it hands out"
    elif limit is not None and sum(caps) + DAEMON_BYTES > bytes_of(limit):
        yield (f"its limit of {limit} is less than what it hands out, {sum(caps) >> 20} MiB, and the "
               f"{DAEMON_BYTES >> 20} MiB that it needs itself")
    in_init = container in pod.get("initContainers", [])
    if in_init and container.get("restartPolicy") != "Always":
        yield "it is an init container and no sidecar: restartPolicy is not Always"
