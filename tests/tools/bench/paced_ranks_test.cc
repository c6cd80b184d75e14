#include "tools/bench/paced_ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "collectives/local/local_communicator.h"
#include "training/nn/parallel/stages/executor.h"

namespace geminid::collectives {
namespace {

using std::chrono::milliseconds;

constexpr LinkSpeed kSpeed = {.latency = milliseconds(1), .per_byte = LinkSeconds(0.002)};

LinkTime At(int64_t ms) { return LinkTime(milliseconds(ms)); }

TEST(Link, MessagesAtOnce_GoOneAfterTheOther) {
  Link link(kSpeed);
  EXPECT_EQ(link.Carry(At(10), 4), At(19));
  EXPECT_EQ(link.Carry(At(10), 4), At(27));  // the latencies of both overlap
  EXPECT_EQ(link.Carry(At(26), 1), At(29));  // exactly when the link becomes free
  EXPECT_EQ(link.Carry(At(50), 0), At(51));
}

TEST(PacedRanks, Receive_WaitsForTheLinkAndHasTheMessage) {
  auto ranks = MakeLocalCommunicators(2);
  std::vector<LinkTime> waits;
  const LinkClock clock = {.now = [] { return At(100); },
                           .wait_until = [&](LinkTime time) { waits.push_back(time); }};
  std::thread sender([&, rank = PaceRanks(std::move(ranks[0]), kSpeed, clock)] {
    const auto pair = rank->Subset("pair", std::array{1, 0});
    for (const float value : {3.0f, 4.0f}) {
      const std::array sent = {value};
      EXPECT_EQ((*pair)->Send(sent, 0, 7), absl::OkStatus());
    }
  });
  {
    const auto rank = PaceRanks(std::move(ranks[1]), kSpeed, clock);
    const auto pair = rank->Subset("pair", std::array{1, 0});
    for (const float value : {3.0f, 4.0f}) {
      std::array<float, 1> got = {};
      EXPECT_EQ((*pair)->Receive(got, 1, 7), absl::OkStatus());
      EXPECT_EQ(got[0], value);
    }
    sender.join();
  }
  EXPECT_EQ(waits, (std::vector<LinkTime>{At(109), At(117)}));
}

// The ranks of a pipeline agree that each has its memory before any of them sends.
TEST(PacedRanks, Pipeline_IsMadeAndMeetsAtBarriers) {
  auto ranks = MakeLocalCommunicators(2);
  const auto make = [](Communicator& rank) {
    const auto executor =
        PipelineExecutor::Make({PipelineKind::k1F1B, 2, 2, 1}, {1, 1, 1, 0}, 4, rank);
    EXPECT_EQ(executor.status(), absl::OkStatus());
  };
  std::thread other([&, rank = PaceRanks(std::move(ranks[1]), kSpeed)] { make(*rank); });
  const auto rank = PaceRanks(std::move(ranks[0]), kSpeed);
  make(*rank);
  other.join();
}

TEST(PacedRanks, AnythingElse_IsRefused) {
  const auto rank = PaceRanks(MakeSelfCommunicator(), kSpeed);
  std::array<float, 1> value = {};
  EXPECT_EQ(rank->Broadcast(value, 0).message(),
            "Broadcast: paced ranks only send, receive and meet at barriers");
}

}  // namespace
}  // namespace geminid::collectives
