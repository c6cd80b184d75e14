// A stored plan is read back whole, or refused with the reason.
#include "daemon/service/sessions/stored_plan.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/memfd.h"
#include "base/pages.h"
#include "daemon/service/sessions/plan_messages.h"
#include "daemon/service/sessions/session_hub.h"
#include "proto/shm/crc32c.h"
#include "tests/daemon/service/planned.h"

namespace geminid::service {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr shm::SessionId kSession{7};

StoredPlan MakeKept(const StoredPlan::Contents& contents) {
  absl::StatusOr<StoredPlan> kept = StoredPlan::Create(kSession, contents.trace, contents.plan);
  EXPECT_TRUE(kept.ok()) << kept.status();
  return *std::move(kept);
}

absl::Status ReadOf(const std::string& file) {
  absl::StatusOr<StoredPlan> kept = StoredPlan::Adopt(*base::CreateWrittenMemfd("plan", file));
  EXPECT_TRUE(kept.ok()) << kept.status();
  return kept->Read(kSession).status();
}

// Sets the right checksum.
std::string Signed(std::string file) {
  const size_t at = offsetof(StoredPlanHeader, crc32c);
  uint32_t crc = shm::Crc32c(file.data(), at);
  crc = shm::Crc32c(file.data() + sizeof(StoredPlanHeader), file.size() - sizeof(StoredPlanHeader),
                    crc);
  std::memcpy(file.data() + at, &crc, sizeof(crc));
  return file;
}

TEST(StoredPlan, WhatWasWritten_IsReadAsAWhole) {
  const StoredPlan::Contents contents = PlannedChain(5, 3 * kMiB);
  const StoredPlan kept = MakeKept(contents);
  const absl::StatusOr<StoredPlan::Contents> read = kept.Read(kSession);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->trace.SerializeAsString(), contents.trace.SerializeAsString());
  EXPECT_EQ(read->plan.SerializeAsString(), contents.plan.SerializeAsString());
  EXPECT_EQ(kept.bytes() % base::kPageBytes, 0u);
  EXPECT_GE(kept.bytes(), contents.trace.ByteSizeLong() + contents.plan.ByteSizeLong());
}

TEST(StoredPlan, AnyByteThatChanged_IsNoticed) {
  const StoredPlan kept = MakeKept(PlannedChain(3, 2 * kMiB));
  const std::string file = *base::ReadMemfd(kept.fd(), kMiB);
  ASSERT_TRUE(ReadOf(file).ok());
  constexpr size_t kReserved = offsetof(StoredPlanHeader, reserved);
  for (size_t i = 0; i < file.size(); ++i) {
    if (i >= kReserved && i < sizeof(StoredPlanHeader)) continue;
    std::string changed = file;
    changed[i] = static_cast<char>(changed[i] ^ 0x20);
    EXPECT_FALSE(ReadOf(changed).ok()) << "byte " << i;
  }
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_FALSE(ReadOf(file.substr(0, bytes)).ok()) << bytes << " bytes";
  }
}

TEST(StoredPlan, OfAnotherReleaseOrSession_SaysSo) {
  const StoredPlan kept = MakeKept(PlannedChain(3, 2 * kMiB));
  EXPECT_THAT(std::string(kept.Read(shm::SessionId{8}).status().message()),
              HasSubstr("it belongs to session 7"));
  std::string file = *base::ReadMemfd(kept.fd(), kMiB);
  ++file[offsetof(StoredPlanHeader, version)];
  EXPECT_EQ(ReadOf(file).code(), StatusCode::kFailedPrecondition);
}

// The file has the right checksum, but this planner did not make it.
TEST(StoredPlan, ThatContradictsItself_IsDataLoss) {
  const StoredPlan::Contents good = PlannedChain(3, 2 * kMiB);
  const auto expect_refused = [&](const char* what, auto change) {
    StoredPlan::Contents bad = good;
    change(&bad);
    const absl::Status status = MakeKept(bad).Read(kSession).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << what;
  };
  expect_refused("a load of a chunk that is not there",
                 [](auto* bad) { bad->plan.mutable_moments(0)->add_loads()->set_index(3); });
  expect_refused("a load for a moment that is not there", [](auto* bad) {
    bad->plan.mutable_moments(0)->add_loads()->set_deadline_moment(6);
  });
  expect_refused("a drop of a chunk that is not there",
                 [](auto* bad) { bad->plan.mutable_moments(0)->add_drops()->set_index(3); });
  expect_refused("a drop until after the end",
                 [](auto* bad) { bad->plan.mutable_moments(0)->add_drops()->set_free_moment(7); });
  expect_refused("a place for a chunk that is not there",
                 [](auto* bad) { bad->plan.add_resident_at_start()->set_index(3); });
  expect_refused("a stall after the end", [](auto* bad) { bad->plan.add_stalls()->set_moment(7); });
  expect_refused("a moment too many", [](auto* bad) { bad->plan.add_moments(); });
  expect_refused("another trace",
                 [](auto* bad) { bad->trace.set_arena_bytes(bad->trace.arena_bytes() + 512); });
  expect_refused("no trace", [](auto* bad) { bad->trace.clear_moments(); });
  EXPECT_TRUE(MakeKept(good).Read(kSession).ok());
  const std::string file = *base::ReadMemfd(MakeKept(good).fd(), kMiB);
  std::string garbled = file;
  for (size_t i = sizeof(StoredPlanHeader); i < garbled.size(); ++i) garbled[i] = '\xff';
  EXPECT_EQ(ReadOf(Signed(garbled)).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(ReadOf(Signed(file)).ok());
}

TEST(StoredPlan, OfTooLargeATrace_IsNotMade) {
  StoredPlan::Contents contents = PlannedChain(3, 2 * kMiB);
  while (contents.trace.ByteSizeLong() <= kMaxKeptTraceBytes) {
    for (int i = 0; i < 1'000'000; ++i) contents.trace.add_moments();
  }
  EXPECT_EQ(StoredPlan::Create(kSession, contents.trace, contents.plan).status().code(),
            StatusCode::kResourceExhausted);
}

// --- the hub's memory for plans ------------------------------------------------------------------

SessionPtr OpenOne(SessionHub* hub, std::vector<base::UniqueFd>* clients) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  clients->emplace_back(ends[0]);
  core::SessionSpec spec;
  spec.tenant = "uid:1";
  spec.job = "test";
  absl::StatusOr<SessionPtr> session = hub->Open(spec, os::Peer(), base::UniqueFd(ends[1]));
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

TEST(HubPlans, Plans_TakeNoMoreMemoryThanTheTenantsShare) {
  Limits limits{config::TenantShares{}};
  SessionHubOptions options;
  options.limits = &limits;
  options.machine = os::ReadMachine(os::SystemNuma());
  options.engine.host_capacity_bytes = kMiB;
  options.engine.devices = {core::HostDevice(shm::DeviceIndex{0}, kMiB)};
  options.plan_memory_bytes = kMiB;
  absl::StatusOr<std::unique_ptr<SessionHub>> hub = SessionHub::Create(options);
  ASSERT_TRUE(hub.ok()) << hub.status();
  std::vector<base::UniqueFd> clients;
  const SessionPtr session = OpenOne(hub->get(), &clients);
  const StoredPlan::Contents large = PlannedChain(2000, 100 * kMiB);
  const core::NextUseTable table = {.moments = 1, .chunks = {}};
  ASSERT_TRUE((*hub)->SetPlan(session, table, large.trace, large.plan).ok());
  ASSERT_NE(session->stored_plan, nullptr);
  EXPECT_GE(session->plan_bytes, session->stored_plan->bytes());
  const uint64_t of_one = session->plan_bytes;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE((*hub)->SetPlan(session, table, large.trace, large.plan).ok());
  }
  EXPECT_EQ(session->plan_bytes, of_one) << "the older plan is given back";
  uint64_t sum = of_one;
  bool refused = false;
  for (int i = 0; i < 10; ++i) {
    const SessionPtr other = OpenOne(hub->get(), &clients);
    ASSERT_TRUE((*hub)->SetPlan(other, table, large.trace, large.plan).ok());
    refused = refused || other->stored_plan == nullptr;
    sum += other->plan_bytes;
  }
  EXPECT_TRUE(refused) << "a plan is not kept where there is no room";
  EXPECT_LE(sum, kMiB);
  const std::vector<core::Refusals::Row> rows = limits.Refused();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].limit, "plan_memory");
}

}  // namespace
}  // namespace geminid::service
