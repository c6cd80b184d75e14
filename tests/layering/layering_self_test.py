#!/usr/bin/env python3
"""Feeds layering.py one violation of each rule, and what is allowed beside it."""

import unittest

import layering


class Layering(unittest.TestCase):
    def violations(self, path, include):
        return list(layering.violations_of(path, f"#include {include}\n"))

    def test_upward_include_is_a_violation(self):
        for path, include in [
            ("base/a.h", '"proto/shm/ring.h"'),
            ("proto/shm/a.h", '"daemon/core/engine.h"'),
            ("kernels/optimizers/adamw/a.cc", '"collectives/communicator.h"'),
            ("collectives/shm/a.cc", '"geminid/session.h"'),
            ("daemon/service/a.cc", '"client/src/control.h"'),
            ("client/src/a.cc", '"daemon/core/engine.h"'),
            ("client/zero/a.cc", '"tools/trainer/train.h"'),
        ]:
            self.assertEqual(len(self.violations(path, include)), 1, (path, include))

    def test_downward_include_is_allowed(self):
        for path, include in [
            ("client/zero/a.cc", '"kernels/optimizers/adamw/adamw.h"'),
            ("client/src/a.cc", '"geminid/v1/session.pb.h"'),
            ("daemon/service/a.cc", '"geminid/v1/session.pb.h"'),
            ("tools/geminictl/a.cc", '"daemon/config/settings.h"'),
        ]:
            self.assertEqual(self.violations(path, include), [], (path, include))

    def test_core_is_pure(self):
        for include in ["<sys/mman.h>", '"daemon/os/event.h"', "<grpcpp/grpcpp.h>", "<dnnl.hpp>",
                        '"base/files.h"', '"base/mapping.h"', '"base/unique_fd.h"']:
            self.assertTrue(self.violations("daemon/core/a.cc", include), include)
        for include in ["<vector>", '"absl/status/status.h"', '"proto/shm/ring.h"',
                        '"base/bytes.h"']:
            self.assertEqual(self.violations("daemon/core/a.cc", include), [], include)

    def test_core_and_planner_know_nothing_of_each_other(self):
        self.assertTrue(self.violations("daemon/core/a.cc", '"daemon/planner/contract/plan.h"'))
        self.assertTrue(self.violations("daemon/planner/a.cc", '"daemon/core/engine.h"'))
        self.assertEqual(self.violations("daemon/planner/a.cc", '"daemon/planner/contract/plan.h"'), [])

    def test_the_trainer_is_nobodys_utility_room(self):
        for path in ["tools/forecast/a.cc", "tools/geminictl/a.cc", "tools/sim/a.cc"]:
            self.assertTrue(self.violations(path, '"tools/trainer/report.h"'), path)
        for path in ["tools/trainer/a.cc", "tools/bench/a.cc"]:
            self.assertEqual(self.violations(path, '"tools/trainer/report.h"'), [], path)

    def test_the_forecast_needs_no_daemon(self):
        for include in ['"daemon/service/hub.h"', '"geminid/v1/plan.grpc.pb.h"', "<grpcpp/grpcpp.h>"]:
            self.assertTrue(self.violations("tools/forecast/a.cc", include), include)
        for include in ['"daemon/planner/contract/plan.h"', '"geminid/v1/trace.pb.h"']:
            self.assertEqual(self.violations("tools/forecast/a.cc", include), [], include)

    def test_cuda_stays_behind_the_seam(self):
        self.assertTrue(self.violations("client/src/a.cc", "<cuda_runtime.h>"))
        self.assertTrue(self.violations("kernels/optimizers/adamw/op_host.cc", "<cuda.h>"))
        self.assertEqual(self.violations("kernels/optimizers/adamw/adamw_cuda.cu", "<cuda.h>"), [])
        self.assertTrue(self.violations("tools/kernel-check/a.cc", "<cuda.h>"))
        self.assertEqual(self.violations("client/device/cuda/a.cc", "<cuda.h>"), [])
        self.assertEqual(self.violations("kernels/runtime/cuda/launch.cuh", "<cuda_runtime.h>"), [])
        self.assertEqual(self.violations("tools/gpu-verify/driver.h", "<cuda.h>"), [])

    def test_public_headers_are_clean(self):
        for include in ["<grpcpp/grpcpp.h>", "<google/protobuf/message.h>", "<boost/a.hpp>",
                        '"proto/shm/lease.h"', '"geminid/v1/plan.pb.h"']:
            self.assertTrue(self.violations("client/include/geminid/a.h", include), include)
        self.assertEqual(self.violations("client/include/geminid/a.h", '"geminid/types.h"'), [])


if __name__ == "__main__":
    unittest.main()
