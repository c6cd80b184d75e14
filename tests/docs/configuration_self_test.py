#!/usr/bin/env python3
"""Feeds configuration.py pages with and without violations."""

import unittest

import configuration

PROTO = """message Config {
  string socket = 2;  // a path
  repeated Device device = 14;
  repeated TenantQuota quotas = 12;
}
message Device {
  uint32 index = 1;
}
message TenantQuota {
  repeated DeviceQuota device = 4;
}
message DeviceQuota {
  string memory = 2;
}
"""
PAGE = """| `socket` | x | `--socket` | no | a path |
| `device` | x | | no | devices |
| `quotas` | x | | yes | limits |
| `device.index` | a number |
| `quotas.device.memory` | a size |
"""


class Configuration(unittest.TestCase):
    def violations(self, page):
        return list(configuration.violations_of(page, PROTO, {"socket": ["--socket"]}, {},
                                                {"quotas"}))

    def test_whole_page_is_allowed(self):
        self.assertEqual(self.violations(PAGE), [])

    def test_missing_key_is_a_violation(self):
        page = PAGE.replace("| `quotas.device.memory` | a size |\n", "")
        self.assertEqual(self.violations(page), ["quotas.device.memory is not in the page"])

    def test_key_that_is_gone_is_a_violation(self):
        self.assertEqual(self.violations(PAGE + "| `colour` | x |\n"), ["there is no key colour"])

    def test_wrong_flag_is_a_violation(self):
        self.assertEqual(len(self.violations(PAGE.replace("--socket", "--path"))), 1)

    def test_wrong_reload_is_a_violation(self):
        self.assertEqual(len(self.violations(PAGE.replace("| no | a path", "| yes | a path"))), 1)


if __name__ == "__main__":
    unittest.main()
