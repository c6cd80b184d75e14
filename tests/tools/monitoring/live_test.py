#!/usr/bin/env python3
"""live_test.py ROOT BIN PROMETHEUS: each query of deploy/monitoring returns data from a real Prometheus that scrapes a real
daemon, under jobs that run, wait and are refused. Alerts that need more than this test provides are left out."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest
import urllib.parse
import urllib.request

ROOT, BIN, PROMETHEUS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
PATIENCE_SECONDS = 120

# A tenant may have three of six sessions: the second job waits for memory, the third is refused.
CONFIG = """config_version: 1
host_memory: "256MiB"
device_memory: "24MiB"
sessions: 6
quotas { tenant: "*" host_memory: "200MiB" }
"""
TRAIN = ["--model", "gpt2-3m", "--steps", "1000000", "--progress", "none", "--text"]


def monitoring():
    loader = importlib.machinery.SourceFileLoader("monitoring", str(ROOT / "tools/monitoring"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("monitoring", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def filled_in(query):
    """Returns the query that Grafana sends for all nodes and jobs."""
    for name, value in (("$__rate_interval", "1m"), ("$instance", ".*"), ("$job_name", ".*")):
        query = query.replace(name, value)
    return query


class Live(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.processes = []
        self.addCleanup(self.end)

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            process.wait(60)
        shutil.rmtree(self.folder)

    def start(self, *command, **options):
        with open(self.folder / f"{len(self.processes)}.log", "w") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, **options))

    def start_daemon(self, metrics_port):
        (self.folder / "g.textproto").write_text(CONFIG)
        ready, told = os.pipe()
        self.start(str(BIN / "geminid"), "--config", str(self.folder / "g.textproto"), "--socket",
                   self.socket, "--metrics-listen", f"127.0.0.1:{metrics_port}", "--ready-fd", str(told),
                   pass_fds=[told])
        os.close(told)
        with os.fdopen(ready) as pipe:
            self.assertEqual(pipe.readline(), "ready\n", (self.folder / "0.log").read_text())

    def train(self, job, *flags):
        text = self.folder / "text"
        text.write_text("In the beginning was the word. " * 2000)
        self.start(str(BIN / "geminid-train"), *TRAIN, str(text), "--socket", self.socket, "--job", job,
                   *flags)

    def await_words(self, log, words):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in log.read_text():
            self.assertLess(time.monotonic(), deadline, log.read_text())
            time.sleep(0.1)

    def start_prometheus(self, metrics_port):
        config = self.folder / "prometheus.yml"
        rules = ROOT / "deploy/prometheus/geminid.rules.yaml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "geminid", "static_configs": [
                {"targets": [f"127.0.0.1:{metrics_port}"]}]}]}))
        port = free_port()
        self.start(PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}",
                   f"--web.listen-address=127.0.0.1:{port}")
        return port

    def answer(self, port, query):
        url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                return json.load(response)["data"]["result"]
        except OSError:
            return []  # Prometheus does not answer yet

    def test_each_query_returns_data(self):
        self.socket = str(self.folder / "g.sock")
        metrics_port = free_port()
        self.start_daemon(metrics_port)
        self.train("first", "--ranks", "2", "--device-memory", "8MiB", "--progress", "lines")
        self.await_words(self.folder / "1.log", "step 1/")  # both ranks are admitted
        self.train("second", "--device-memory", "20MiB")  # waits for the first job
        prometheus = self.start_prometheus(metrics_port)
        source = tomllib.loads((ROOT / "deploy/monitoring/source.toml").read_text())
        source["alert"] = [alert for alert in source["alert"] if "needs" not in alert]
        queries = dict(monitoring().queries(source))
        self.assertGreater(len(queries), 30)
        without = dict(queries)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while without and time.monotonic() < deadline:
            if "GeminidRefuses" in without:  # asks for more sessions than the tenant may have
                self.train("third", "--ranks", "2", "--queue-timeout", "0")
                self.processes.pop().wait(PATIENCE_SECONDS)
            without = {name: query for name, query in without.items()
                       if not self.answer(prometheus, filled_in(query))}
            time.sleep(0.5)
        self.assertEqual(without, {}, "these return no data")
        self.assertEqual(self.answer(prometheus, "geminid_colour"), [], "no query is always answered")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
