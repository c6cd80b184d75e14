// Ranks that are alive but silent, over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "geminid/connect.h"
#include "tests/collectives/doors.h"
#include "tests/collectives/forked_ranks.h"
#include "tests/collectives/operations.h"
#include "tests/collectives/tcp_proxy.h"

namespace geminid::collectives {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::chrono::seconds kPromptly{2};  // the bound on noticing a death
constexpr int kFar = 2;                       // the rank at the end of the wire

std::string Silent(int rank) {
  return absl::StrCat("UNAVAILABLE: nothing was heard from rank ", rank, " at 127.0.0.1 for ");
}

// All ranks on one host. One of them reaches rank 0 over a wire.
class FarDoor {
 public:
  explicit FarDoor(milliseconds delay)
      : listener_(*ListenTcp("127.0.0.1", 0)),
        port_(*PortOf(listener_.get())),
        wire_(port_, delay) {}

  absl::StatusOr<std::unique_ptr<Communicator>> Enter(int rank, absl::Duration silence) {
    TcpOptions options{.port = rank == kFar ? wire_.port() : port_,
                       .timeout = kPatience,
                       .connect_timeout = kPatience,
                       .silence = silence};
    if (rank == 0) options.listener = std::move(listener_);
    listener_.Reset();
    return ConnectTcp(rank, kRanks, std::move(options));
  }
  const TcpProxy& wire() const { return wire_; }

 private:
  base::UniqueFd listener_;
  const uint16_t port_;
  const TcpProxy wire_;
};

// Meets the others until a meeting fails. Reports after the first meeting, and again after the
// failure.
std::string MeetOn(Communicator& c, const ForkedRanks::Ready& ready) {
  absl::Status status = c.Barrier();
  ready();
  while (status.ok()) status = c.Barrier();
  ready();
  return Text(status);
}

class Silence : public testing::Test {
 protected:
  static ForkedRanks::Body Meeting(FarDoor& door, absl::Duration silence = kDefaultSilence) {
    return [&door, silence](int rank, const ForkedRanks::Ready& ready) -> std::string {
      auto c = door.Enter(rank, silence);
      return c.ok() ? MeetOn(**c, ready) : Text(c.status());
    };
  }
  static void AwaitAll(ForkedRanks& ranks) {
    for (int r = 0; r < kRanks; ++r) ranks.AwaitReady(r);
  }
};

TEST_F(Silence, OfAWireThatStandsStill_NamesWhoIsAtItsOtherEnd) {
  FarDoor door(milliseconds(0));
  ForkedRanks ranks(kRanks, Meeting(door));
  AwaitAll(ranks);
  door.wire().Stall();
  const auto stalled = steady_clock::now();
  for (int r = 0; r < kRanks; ++r) EXPECT_LT(ranks.AwaitReady(r) - stalled, kPromptly) << r;
  EXPECT_THAT(ranks.Result(kFar), StartsWith(Silent(0) + "1.2s"));
  for (const int r : {0, 1, 3}) {
    EXPECT_THAT(ranks.Result(r), StartsWith(Silent(kFar) + "1.2s")) << r;
  }
}

TEST_F(Silence, OfAWireThatIsLong_IsNone) {
  FarDoor door(milliseconds(200));
  ForkedRanks ranks(kRanks, Meeting(door));
  AwaitAll(ranks);
  EXPECT_FALSE(ranks.SaysSomethingWithin(0, milliseconds(2000)));
  ranks.Kill(1);
  for (const int r : {0, 2, 3}) {
    ranks.AwaitReady(r);
    EXPECT_THAT(ranks.Result(r), HasSubstr("rank 1 died"));
  }
}

// The pauses are each shorter than the limit, and longer together.
TEST_F(Silence, ShorterThanTheLimit_IsNone) {
  FarDoor door(milliseconds(0));
  ForkedRanks ranks(kRanks, Meeting(door, absl::Seconds(3)));
  AwaitAll(ranks);
  for (int trial = 0; trial < 3; ++trial) {
    door.wire().Stall();
    EXPECT_FALSE(ranks.SaysSomethingWithin(0, milliseconds(1200)));
    door.wire().GoOn();
    EXPECT_FALSE(ranks.SaysSomethingWithin(kFar, milliseconds(200)));
  }
}

TEST_F(Silence, WithALongerLimit_MayBeLonger) {
  FarDoor door(milliseconds(0));
  ForkedRanks ranks(kRanks, Meeting(door, absl::Seconds(20)));
  AwaitAll(ranks);
  door.wire().Stall();
  EXPECT_FALSE(ranks.SaysSomethingWithin(0, milliseconds(2000)));
}

// The others do not wait for the rank, and it does not continue beside them when it wakes.
TEST_F(Silence, OfAStoppedRank_IsADeathThatItHearsOfItself) {
  FarDoor door(milliseconds(0));
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready& ready) -> std::string {
    auto c = door.Enter(rank, kDefaultSilence);
    if (!c.ok()) return Text(c.status());
    const std::string words = MeetOn(**c, ready);
    return absl::StrCat(words, " | ", Use((*c)->Shrink()));
  });
  AwaitAll(ranks);
  ranks.Stop(3);
  for (const int r : {0, 1, 2}) {
    ranks.AwaitReady(r);
    const std::string words = ranks.Result(r);
    EXPECT_THAT(words, StartsWith(Silent(3)));
    EXPECT_THAT(words, HasSubstr(" | good: 0,1,2"));
  }
  ranks.Continue(3);
  EXPECT_THAT(ranks.Result(3), HasSubstr("the other ranks heard nothing from rank 3 for so long"));
}

TEST_F(Silence, OfRankZero_IsToldToAll) {
  FarDoor door(milliseconds(0));
  ForkedRanks ranks(kRanks, Meeting(door));
  AwaitAll(ranks);
  const auto stopped = steady_clock::now();
  ranks.Stop(0);
  for (const int r : {1, 2, 3}) {
    EXPECT_LT(ranks.AwaitReady(r) - stopped, kPromptly) << r;
    EXPECT_THAT(ranks.Result(r), StartsWith(Silent(0)));
  }
}

TEST(SilenceVariable, ThatIsNoDuration_IsRefused) {
  const RankInfo info{.rank = 0, .world_size = 2, .master_address = "127.0.0.1"};
  for (const char* const value : {"5", "soon", "100ms", "-1s", "2h"}) {
    ASSERT_EQ(::setenv("GEMINID_SILENCE", value, 1), 0);
    const auto status = Connect(info, {.backend = BackendChoice::kTcp}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("=\"", value, "\"")));
  }
  ::unsetenv("GEMINID_SILENCE");
}

TEST(SilenceVariable, OfAnyDuration_IsTaken) {
  for (const char* const value : {"", "500ms", "1h", "inf"}) {
    ASSERT_EQ(::setenv("GEMINID_SILENCE", value, 1), 0);
    const RankInfo info{.rank = 0, .world_size = 1, .master_address = "127.0.0.1"};
    const ConnectOptions options{.backend = BackendChoice::kTcp};
    // Port 0 means a free port.
    RankInfo anywhere = info;
    anywhere.master_port = 0;
    EXPECT_TRUE(Connect(anywhere, options).ok()) << value;
  }
  ::unsetenv("GEMINID_SILENCE");
}

}  // namespace
}  // namespace geminid::collectives
