#!/usr/bin/env python3
"""made_test.py ROOT PROMTOOL: the files of tools/monitoring are current and complete. promtool, if present, accepts them."""

import importlib.machinery
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT, PROMTOOL = pathlib.Path(sys.argv[1]), sys.argv[2]

needs_promtool = unittest.skipUnless(pathlib.Path(PROMTOOL).is_file(), "there is no promtool")
# Names of Prometheus itself, and names that it derives from ours.
OTHERS = {"up", "le", "alertname", "alertstate"}


def monitoring():
    loader = importlib.machinery.SourceFileLoader("monitoring", str(ROOT / "tools/monitoring"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("monitoring", loader))
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True
M = monitoring()
SOURCE = tomllib.loads((ROOT / M.SOURCE).read_text())


def unknown_metrics(source, catalogue):
    """Returns names in queries that are neither a metric nor a recording rule."""
    known = set(re.findall(r'"((?:geminid|process)_\w+)"', catalogue))
    known |= {name + part for name in known for part in ("_bucket", "_sum", "_count")}
    known |= {record["name"] for record in source["record"]}
    used = set()
    for _, query in M.queries(source):
        used |= set(re.findall(r"(?:[a-z]+:)?(?:geminid|process)_\w+(?::\w+)?", query))
    return used - known


def promtool(files, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            (pathlib.Path(folder) / pathlib.Path(path).name).write_text(text)
        done = subprocess.run([PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True,
                              check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr


class Made(unittest.TestCase):
    def test_files_are_those_of_the_source(self):
        self.assertEqual(M.differences(ROOT, M.made(SOURCE)), [], "run tools/monitoring")

    def test_stale_file_is_found(self):
        source = json.loads(json.dumps(SOURCE))
        source["alert"][0]["above"] = 7
        self.assertEqual(M.differences(ROOT, M.made(source)),
                         ["deploy/prometheus/geminid.rules.yaml", "docs/runbook.md"])

    def test_queries_ask_for_metrics_that_exist(self):
        catalogue = (ROOT / "daemon/metrics/catalogue.h").read_text()
        self.assertEqual(unknown_metrics(SOURCE, catalogue), set())
        self.assertIn("geminid_epoch", unknown_metrics({**SOURCE, "record": [
            {"name": "x", "value": "geminid_epoch"}]}, ""))

    def test_each_alert_has_a_page_in_the_runbook_and_is_tested_both_ways(self):
        for alert in SOURCE["alert"]:
            self.assertIn(f"\n## {alert['name']}\n", M.runbook(SOURCE))
            self.assertTrue(alert["do"] and alert["loud"] and alert["quiet"], alert["name"])

    def test_dashboards_have_panels_that_do_not_overlap(self):
        for entry in SOURCE["dashboard"]:
            made = M.dashboard(entry)
            places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]}
            self.assertEqual(len(places), len(entry["panel"]))
            self.assertEqual(len({panel["id"] for panel in made["panels"]}), len(places))

    @needs_promtool
    def test_rules_are_good_and_each_alert_fires_when_it_should_and_only_then(self):
        files = M.made(SOURCE)
        code, said = promtool(files, "check", "rules", "geminid.rules.yaml")
        self.assertEqual(code, 0, said)
        code, said = promtool(files, "test", "rules", "geminid.rules.test.yaml")
        self.assertEqual(code, 0, said)

    @needs_promtool
    def test_alert_that_fires_never_or_always_is_found(self):
        for above in (1e18, -1e18):
            source = json.loads(json.dumps(SOURCE))
            source["alert"][0]["above"] = above
            code, said = promtool(M.made(source), "test", "rules", "geminid.rules.test.yaml")
            self.assertNotEqual(code, 0, said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
