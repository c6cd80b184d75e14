#!/usr/bin/env python3
"""Feeds layering.py one violation of each rule, and similar text that is allowed."""

import pathlib
import tempfile
import unittest

import circles
import layering
import training_rooms
import tree


class Layering(unittest.TestCase):
    def violations(self, path, include):
        return list(layering.violations_of(path, f"#include {include}\n"))

    def test_upward_include_is_a_violation(self):
        for path, include in [
            ("base/a.h", '"proto/shm/ring.h"'),
            ("gpu/a.h", '"proto/shm/ring.h"'),
            ("proto/shm/a.h", '"daemon/core/engine/engine.h"'),
            ("kernels/optimizers/adamw/a.cc", '"collectives/reduce.h"'),
            ("collectives/shm/a.cc", '"client/src/control.h"'),
            ("kernels/model/a.h", '"geminid/zero.h"'),
            ("daemon/service/a.cc", '"client/src/control.h"'),
            ("client/src/a.cc", '"daemon/core/engine/engine.h"'),
            ("client/zero/a.cc", '"tools/trainer/train.h"'),
            ("client/zero/a.cc", '"training/nn/compute.h"'),
            ("collectives/mesh/a.cc", '"training/nn/parallel/tensor/linear_1d.h"'),
            ("training/launch/a.cc", '"tools/geminictl/plan/plan.h"'),
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
        self.assertTrue(self.violations("daemon/planner/a.cc", '"daemon/core/engine/engine.h"'))
        self.assertEqual(self.violations("daemon/planner/a.cc", '"daemon/planner/contract/plan.h"'), [])

    def test_a_room_includes_no_later_one(self):
        def rooms(path, include):
            return list(layering.rooms_upward(path, f'#include "{include}"\n'))
        self.assertTrue(rooms("daemon/core/accounts/a.h", "daemon/core/engine/engine.h"))
        self.assertTrue(rooms("daemon/service/heritage/a.cc", "daemon/service/sessions/session_hub.h"))
        self.assertTrue(rooms("daemon/service/a.cc", "base/bytes.h"), "a file that is in no room")
        self.assertTrue(rooms("daemon/core/engine/a.cc", "daemon/core/a.h"), "a room that is none")
        self.assertEqual(rooms("daemon/core/engine/a.cc", "daemon/core/accounts/ledger.h"), [])
        self.assertEqual(rooms("daemon/core/engine/a.cc", "daemon/core/engine/engine.h"), [])
        self.assertTrue(rooms("client/zero/state/a.h", "client/zero/update/updater.h"))
        self.assertEqual(rooms("daemon/memory/a.cc", "daemon/core/engine/engine.h"), [])

    def test_the_trainer_is_a_program_and_no_library(self):
        for path in ["tools/bench/a.cc", "tools/geminictl/a.cc", "tools/sim/a.cc"]:
            self.assertTrue(self.violations(path, '"tools/trainer/report.h"'), path)
        self.assertEqual(self.violations("tools/trainer/a.cc", '"tools/trainer/report.h"'), [])

    def test_training_needs_no_daemon(self):
        for include in ['"daemon/service/sessions/session_hub.h"', '"geminid/v1/plan.grpc.pb.h"', "<grpcpp/grpcpp.h>"]:
            for path in ["training/forecast/a.cc", "training/ranks/a.cc"]:
                self.assertTrue(self.violations(path, include), include)
        for include in ['"daemon/planner/contract/plan.h"', '"geminid/v1/trace.pb.h"']:
            self.assertEqual(self.violations("training/forecast/a.cc", include), [], include)

    def test_cuda_stays_behind_the_seam(self):
        self.assertTrue(self.violations("client/src/a.cc", "<cuda_runtime.h>"))
        self.assertTrue(self.violations("kernels/optimizers/adamw/op_host.cc", "<cuda.h>"))
        self.assertTrue(self.violations("kernels/optimizers/adamw/adamw_cuda.cu", "<cuda.h>"))
        self.assertTrue(self.violations("tools/kernel-check/a.cc", "<cuda.h>"))
        self.assertTrue(self.violations("client/device/cuda/a.cc", "<cuda.h>"))
        self.assertTrue(self.violations("collectives/nccl/a.cc", "<cuda.h>"))
        self.assertTrue(self.violations("tools/gpu-verify/device.h", "<cuda.h>"))
        self.assertTrue(self.violations("kernels/runtime/cuda/pack.cuh", "<cuda_runtime.h>"))
        self.assertEqual(self.violations("gpu/driver_api.h", "<cuda.h>"), [])

    def test_of_the_daemon_only_the_agent_knows_a_driver(self):
        include = '"gpu/driver.h"'
        for path in ["daemon/service/a.cc", "daemon/os/a.cc", "base/a.cc", "proto/shm/a.h"]:
            self.assertTrue(self.violations(path, include), path)
        for path in ["daemon/agent/a.cc", "client/device/cuda/a.cc", "tools/gpu-verify/device.h",
                     "kernels/runtime/cuda/module.cc", "collectives/nccl/a.cc"]:
            self.assertEqual(self.violations(path, include), [], path)

    def test_wall_clock_is_a_violation(self):
        for code in ["absl::Time now = absl::Now();", "auto t = std::chrono::system_clock::now();",
                     "std::chrono::high_resolution_clock::now()", "clock_gettime(CLOCK_REALTIME, &t);",
                     "gettimeofday(&t, nullptr);", "const time_t now = time(nullptr);",
                     "x = ::time(&t);", "std::time(nullptr)", "std::timespec_get(&t, TIME_UTC);",
                     "pthread_cond_timedwait(&c, &m, &t);", "sem_timedwait(&s, &t);",
                     "condition.WaitWithTimeout(&mutex, left);", "mutex.AwaitWithDeadline(c, t);",
                     "done.WaitForNotificationWithTimeout(left);", "base::WallClockNow();"]:
            self.assertEqual(len(list(layering.wall_clocks("client/src/a.cc", code))), 1, code)

    def test_monotonic_clock_and_stamps_are_allowed(self):
        for code in ["base::MonotonicNow()", "std::chrono::steady_clock::now()", "// absl::Now",
                     "clock_gettime(CLOCK_MONOTONIC, &t);", "deadline.time()", "step_time(0)",
                     "context->time(nullptr)"]:
            self.assertEqual(list(layering.wall_clocks("client/src/a.cc", code)), [], code)
        for path, code in [("tools/geminictl/commands/bundle.cc", "base::WallClockNow()"),
                           ("base/clock.h", "absl::Now()"), ("tests/base/a_test.cc", "absl::Now()")]:
            self.assertEqual(list(layering.wall_clocks(path, code)), [], path)

    def test_public_headers_are_clean(self):
        for include in ["<grpcpp/grpcpp.h>", "<google/protobuf/message.h>", "<boost/a.hpp>",
                        '"proto/shm/lease.h"', '"geminid/v1/plan.pb.h"']:
            self.assertTrue(self.violations("include/geminid/a.h", include), include)
        self.assertEqual(self.violations("include/geminid/a.h", '"geminid/types.h"'), [])


class Circles(unittest.TestCase):
    def circles(self, texts):
        return list(circles.circles_of(tree.includes_of(texts)))

    def test_circle_between_neighbours_is_a_violation(self):
        found = self.circles({
            "kernels/a/x.h": '#include "kernels/b/y.h"',
            "kernels/b/y.h": '',
            "kernels/b/z.h": '#include "kernels/c/u.h"',
            "kernels/c/u.h": '#include "kernels/a/w.h"',
            "kernels/a/w.h": '',
            "kernels/d/v.h": '#include "kernels/a/w.h"',
        })
        self.assertEqual(found, ["""kernels: a circle between a, b, c
  a -> b: kernels/a/x.h includes kernels/b/y.h
  b -> c: kernels/b/z.h includes kernels/c/u.h
  c -> a: kernels/c/u.h includes kernels/a/w.h"""])

    def test_circle_of_all_that_lies_in_folders_is_a_violation(self):
        found = self.circles({
            "client/a/deep/x.h": '#include "client/b/y.h"',
            "client/b/y.h": '#include "client/a/other/z.h"',
            "client/a/other/z.h": '',
        })
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith("client: a circle between a, b"), found)

    def test_folder_both_above_and_below_its_subfolder_is_a_violation(self):
        found = self.circles({
            "daemon/core/x.cc": '#include "daemon/core/sub/y.h"',
            "daemon/core/sub/y.h": '#include "daemon/core/z.h"',
            "daemon/core/z.h": '',
        })
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith("daemon/core: a circle between its own files, sub"))

    def test_circle_between_top_folders_is_found_through_public_headers(self):
        found = self.circles({
            "include/geminid/a.h": '#include "base/b.h"',
            "base/b.h": '#include "geminid/a.h"',
        })
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith("the tree: a circle between base, include"), found)

    def test_two_circles_of_a_folder_are_two_violations(self):
        texts = {f"tools/{a}/x.h": f'#include "tools/{b}/x.h"'
                 for a, b in ("ab", "ba", "cd", "dc")}
        self.assertEqual(len(self.circles(texts)), 2)

    def test_circle_between_folders_of_tests_is_a_violation(self):
        found = self.check({
            "tests/gpu/x_test.cc": '#include "tests/kernels/y.h"',
            "tests/kernels/y.h": '#include "tests/gpu/z.h"',
            "tests/gpu/z.h": '',
            "gpu/x.h": '', "kernels/y.h": '',
        })
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith("tests: a circle between gpu, kernels"), found)

    def check(self, texts):
        """Returns the violations that the program finds in a tree of these files."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in texts.items():
                file = pathlib.Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return layering.check(pathlib.Path(folder))[1]

    def test_arrows_one_way_are_allowed(self):
        self.assertEqual(self.circles({
            "kernels/a/x.h": '#include "kernels/b/y.h"',
            "kernels/b/y.h": '#include "kernels/c/z.h"\n#include <vector>',
            "kernels/c/z.h": '#include "kernels/c/u.h"',
            "kernels/c/u.h": '#include "kernels/c/z.h"',
            "kernels/top.h": '#include "kernels/a/x.h"\n#include "kernels/c/z.h"',
        }), [])


class Rooms(unittest.TestCase):
    # A file for each arrow, and the CMakeLists.txt of each row.
    TEXTS = {f"{room}/a{number}.h": f'#include "{other}/a.h"\n'
             for room, row in training_rooms.ROOMS.items() for number, other in enumerate(sorted(row))}
    LISTS = {room: "# What it is for.\ngeminid_library(" + training_rooms.library_of(room) + "\n  SOURCES a.cc\n  LIBS "
                   + " ".join(training_rooms.library_of(other) for other in sorted(row)) + " geminid_base)\n"
             for room, row in training_rooms.ROOMS.items()}

    def violations(self, texts=(), lists=()):
        return training_rooms.violations_of(self.TEXTS | dict(texts), self.LISTS | dict(lists))

    def one(self, words, texts=(), lists=()):
        found = self.violations(texts, lists)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_rows_that_sources_and_libraries_follow_are_allowed(self):
        self.assertEqual(self.violations(), [])

    def test_include_of_a_room_that_is_not_in_the_row_is_a_violation(self):
        for path, included in [("training/launch/b.cc", "training/models/model_config.h"),
                               ("training/nn/b.h", "training/transformer/ends.h"),
                               ("training/nn/parallel/b.cc", "training/nn/blocks.h"),
                               ("training/data/b.cc", "training/settings/options.h"),
                               ("tools/trainer/flags/b.cc", "training/engines/trained_model.h"),
                               ("tools/geminictl/b.cc", "training/transformer/ends.h"),
                               ("tools/kernel-check/b.cc", "training/forecast/costs.h")]:
            self.one("must not include", texts={path: f'#include "{included}"\n'})

    def test_arrow_that_no_source_has_is_a_violation(self):
        path = next(path for path in self.TEXTS if path.startswith("training/meshes/"))
        self.one("take it out of the row", texts={path: ""})

    def test_file_of_no_room_is_a_violation(self):
        self.one("is no room", texts={"training/helpers/b.h": ""})
        self.one("is no room", texts={"tools/trainer/more/b.h": ""})

    def test_library_that_links_more_or_less_than_the_row_is_a_violation(self):
        own = self.LISTS["training/meshes"]
        self.one("do not link geminid_training_launch",
                 lists={"training/meshes": own.replace("geminid_base", "geminid_training_launch")})
        self.one("so link geminid_training_forecast",
                 lists={"training/meshes": own.replace("geminid_training_forecast", "geminid_base")})

    def test_room_of_two_libraries_or_of_none_or_without_a_comment_is_a_violation(self):
        own = self.LISTS["training/logs"]
        self.one("is one library", lists={"training/logs": own + "geminid_library(other SOURCES b.cc)\n"})
        self.one("is one library", lists={"training/logs": ""})
        self.one("what the room is for", lists={"training/logs": own.split("\n", 1)[1]})

    def test_rows_out_of_order_are_a_violation(self):
        self.assertEqual(list(training_rooms.wrong_order({"a": set(), "b": {"a"}})), [])
        self.assertEqual(len(list(training_rooms.wrong_order({"a": {"b"}, "b": {"a"}}))), 1)
        self.assertEqual(len(list(training_rooms.wrong_order({"a": {"a"}}))), 1)

    def test_room_or_trainer_that_is_too_large_is_a_violation(self):
        self.one("files", texts={f"training/logs/b{number}.h": "" for number in range(training_rooms.FILES_MAX + 1)})
        self.one("lines", texts={"tools/trainer/b.cc": "\n" * (training_rooms.TRAINER_LINES_MAX + 1)})


class Mirror(unittest.TestCase):
    SOURCES = {"kernels/a.h", "kernels/model/attention/attention.h", "daemon/core/engine/engine.cc",
               "collectives/tcp/coordinator.h", "collectives/tcp/reduce.h", "collectives/reduce.h"}

    def misplaced(self, *tests):
        return list(layering.misplaced_tests(tests, self.SOURCES))

    def test_tests_of_no_folder_are_a_violation(self):
        for test in ["tests/kernel/a_test.cc", "tests/kernels/models/a_test.cc",
                     "tests/core/a_test.cc", "tests/a_test.cc"]:
            self.assertEqual(len(self.misplaced(test)), 1, test)

    def test_tests_of_a_folder_or_of_the_whole_are_allowed(self):
        self.assertEqual(self.misplaced("tests/kernels/model/a_test.cc", "tests/kernels/b_test.cc",
                                        "tests/end_to_end/c_test.cc"), [])

    def test_test_above_the_file_it_is_named_after_is_a_violation(self):
        for test in ["tests/collectives/coordinator_test.cc", "tests/daemon/engine_test.cc"]:
            self.assertEqual(len(self.misplaced(test)), 1, test)

    def test_test_beside_or_below_its_file_or_in_a_room_of_kernels_is_allowed(self):
        self.assertEqual(self.misplaced("tests/collectives/tcp/coordinator_test.cc",
                                        "tests/collectives/reduce_test.cc",
                                        "tests/kernels/model/attention_test.cc",
                                        "tests/daemon/core/coordinator_test.cc"), [])


class Root(unittest.TestCase):
    def test_file_that_does_not_belong_there_is_a_violation(self):
        for path in ["--help", "core", "notes.md", "scratch/a.cc"]:
            self.assertEqual(len(list(layering.strays([path]))), 1, path)

    def test_files_of_the_project_are_allowed(self):
        self.assertEqual(list(layering.strays(["README.md", "daemon/core/a.h", "docs/adr/1.md"])), [])


if __name__ == "__main__":
    unittest.main()
