// Runs geminictl in the test's process, with a real daemon and a client that holds chunks.
#ifndef GEMINID_TESTS_TOOLS_GEMINICTL_IN_PROCESS_H_
#define GEMINID_TESTS_TOOLS_GEMINICTL_IN_PROCESS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "geminid/session.h"
#include "tests/base/json_values.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/tools/geminictl/outcome.h"

namespace geminid::ctl {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

inline size_t Lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Geminictl : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  std::unique_ptr<Session> Attach(const std::string& job) {
    ConnectOptions options;
    options.socket = env_.socket();
    options.job = job;
    options.device_memory_bytes = 4 * kMiB;
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  // A session with three chunks, the first of which is on the device.
  std::unique_ptr<Session> AttachWithChunks() {
    std::unique_ptr<Session> session = Attach("demo");
    if (session == nullptr) return nullptr;
    const auto chunks = session->Allocate({{"layer0", ChunkKind::kGeneric, kMiB},
                                           {"layer1", ChunkKind::kExpAvg, kMiB},
                                           {"evil\x1b[2J", ChunkKind::kGeneric, kMiB}});
    EXPECT_TRUE(chunks.ok()) << chunks.status();
    if (!chunks.ok()) return nullptr;
    EXPECT_TRUE(session->Use((*chunks)[0].id).ok());
    return session;
  }

  Outcome RunHere(std::vector<std::string> arguments) {
    return RunWith(arguments, {{"GEMINID_SOCKET", env_.socket()}});
  }

  geminid::testing::DaemonEnv env_;
};

// Asks for a plan for one chunk, as an engine does.
inline void MakePlanFor(Session* session, ChunkId chunk) {
  Trace trace;
  trace.arena_bytes = 4 * kMiB;
  trace.chunks.push_back(
      {.chunk = chunk, .device_bytes = kMiB, .transfer_bytes = kMiB, .gradient_bytes = kMiB});
  trace.moments.push_back({.uses = {{0, false}}, .workspace_bytes = 4096, .compute_seconds = 1e-3});
  trace.moments.push_back({.uses = {{0, true}}, .workspace_bytes = 4096, .compute_seconds = 2e-3});
  trace.link.host_to_device_bytes_per_second = 1e10;
  trace.link.device_to_host_bytes_per_second = 1e10;
  const absl::StatusOr<Plan> plan = session->MakePlan(trace, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
}

}  // namespace geminid::ctl

#endif  // GEMINID_TESTS_TOOLS_GEMINICTL_IN_PROCESS_H_
