#include "collectives/tcp/coordinator.h"

#include <gtest/gtest.h>

#include <random>

#include "collectives/tcp/socket.h"
#include "collectives/tcp/tcp_communicator.h"

namespace geminid::collectives {
namespace {

RankAddress RankAddressOf(int rank) {
  return {.address = "10.0.0." + std::to_string(1 + rank),
          .port = 4000,
          .rank_0 = "10.0.0.1",
          .machine = "a machine"};
}

Frame Hello(int rank, int world_size, const char* job = "job") {
  return {.type = FrameType::kHello,
          .rank = rank,
          .number = world_size,
          .key = job,
          .value = std::string(kProtocol) + "\n" +
                   EncodeRankAddresses(std::vector{RankAddressOf(rank)})};
}

// Two ranks that have met, on connections 10 and 11.
Coordinator PairThatMet() {
  Coordinator coordinator(2, "job");
  EXPECT_TRUE(coordinator.OnFrame(10, Hello(0, 2)).empty());
  const auto welcomes = coordinator.OnFrame(11, Hello(1, 2));
  EXPECT_EQ(welcomes.size(), 2u);
  return coordinator;
}

std::string RefusalOf(const std::vector<Coordinator::Outgoing>& out) {
  EXPECT_EQ(out.size(), 1u);
  if (out.empty()) return "";
  EXPECT_EQ(out[0].frame.type, FrameType::kRefused);
  EXPECT_TRUE(out[0].close_after);
  return out[0].frame.value;
}

TEST(Coordinator, LastHello_WelcomesAll) {
  Coordinator coordinator(2, "job");
  EXPECT_EQ(coordinator.missing_ranks(), (std::vector<int>{0, 1}));
  EXPECT_TRUE(coordinator.OnFrame(1, Hello(1, 2)).empty());
  EXPECT_EQ(coordinator.missing_ranks(), std::vector<int>{0});
  const auto out = coordinator.OnFrame(2, Hello(0, 2));
  ASSERT_EQ(out.size(), 2u);
  for (const auto& message : out) {
    EXPECT_EQ(message.frame.type, FrameType::kWelcome);
    EXPECT_EQ(DecodeRankAddresses(message.frame.value),
              (std::vector{RankAddressOf(0), RankAddressOf(1)}));
  }
}

TEST(Coordinator, WrongHellos_AreRefusedWithTheReason) {
  Coordinator coordinator = PairThatMet();
  EXPECT_NE(RefusalOf(coordinator.OnFrame(12, Hello(1, 2))).find("already"), std::string::npos);
  EXPECT_NE(RefusalOf(coordinator.OnFrame(12, Hello(1, 3))).find("3 ranks"), std::string::npos);
  EXPECT_NE(RefusalOf(coordinator.OnFrame(12, Hello(2, 2))).find("rank 2"), std::string::npos);
  EXPECT_NE(RefusalOf(coordinator.OnFrame(12, Hello(-1, 2))).find("rank -1"), std::string::npos);
  EXPECT_NE(RefusalOf(coordinator.OnFrame(12, Hello(1, 2, "x"))).find("\"x\""), std::string::npos);
  Frame old = Hello(1, 2);
  old.value = "geminid-collectives 0";
  EXPECT_NE(RefusalOf(coordinator.OnFrame(12, old)).find("protocol"), std::string::npos);
  EXPECT_NE(RefusalOf(coordinator.OnFrame(12, {.type = FrameType::kBeat})).find("hello"),
            std::string::npos);
}

TEST(Coordinator, HelloBeyondTheLimit_IsRefused) {
  Coordinator coordinator(2, "job");
  Frame hello = Hello(1, 2);
  hello.value += std::string(kMaxHelloBytes, 'x');
  EXPECT_NE(RefusalOf(coordinator.OnFrame(12, hello)).find("too long"), std::string::npos);
}

TEST(Coordinator, ClosedWithoutBye_IsADeathForAll) {
  Coordinator coordinator = PairThatMet();
  const auto out = coordinator.OnClosed(11);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].connection, 10);
  EXPECT_EQ(out[0].frame.type, FrameType::kDeath);
  EXPECT_EQ(out[0].frame.rank, 1);
}

TEST(Coordinator, Silence_IsADeathForAllAndForWhoWasSilent) {
  Coordinator coordinator = PairThatMet();
  const auto out = coordinator.OnSilent(11, absl::Milliseconds(1200), "10.0.0.7");
  ASSERT_EQ(out.size(), 2u);
  for (const auto& message : out) {
    EXPECT_EQ(message.frame,
              (Frame{.type = FrameType::kDeath, .rank = 1, .number = 1200, .value = "10.0.0.7"}));
  }
  EXPECT_TRUE(coordinator.OnClosed(11).empty()) << "it has died once";
  EXPECT_TRUE(coordinator.OnSilent(99, absl::Seconds(1), "").empty()) << "nobody's connection";
}

TEST(Coordinator, Beat_IsNoNews) {
  Coordinator coordinator = PairThatMet();
  EXPECT_TRUE(coordinator.OnFrame(11, {.type = FrameType::kBeat}).empty());
}

TEST(Coordinator, ClosedAfterBye_IsNoNews) {
  Coordinator coordinator = PairThatMet();
  EXPECT_TRUE(coordinator.OnFrame(11, {.type = FrameType::kBye}).empty());
  EXPECT_TRUE(coordinator.OnClosed(11).empty());
}

TEST(Coordinator, DeathBeforeAllCame_IsToldToTheLate) {
  Coordinator coordinator(2, "job");
  coordinator.OnFrame(10, Hello(0, 2));
  coordinator.OnClosed(10);
  const auto out = coordinator.OnFrame(11, Hello(1, 2));
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(out[0].frame.type, FrameType::kDeath);
}

TEST(Coordinator, FirstFailureOfAGroup_IsTheOnlyOne) {
  Coordinator coordinator = PairThatMet();
  const Frame first{.type = FrameType::kFailure, .number = 4, .key = "g", .value = "first"};
  Frame second = first;
  second.value = "second";
  const auto out = coordinator.OnFrame(10, first);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].frame.value, "first");
  EXPECT_TRUE(coordinator.OnFrame(11, second).empty());
  second.key = "another group";
  EXPECT_EQ(coordinator.OnFrame(11, second).size(), 2u);
}

TEST(FrameReader, BytesOneByOne_GiveTheFrames) {
  const Frame a{.type = FrameType::kHello, .rank = -2, .number = 1 << 30, .key = "k", .value = "v"};
  const Frame b{.type = FrameType::kBye};
  const std::string stream = Encode(a) + Encode(b);
  FrameReader reader;
  std::vector<Frame> frames;
  for (const char byte : stream) {
    reader.Append(&byte, 1);
    auto frame = reader.Next();
    ASSERT_TRUE(frame.ok());
    if (frame->has_value()) frames.push_back(**frame);
  }
  EXPECT_EQ(frames, (std::vector<Frame>{a, b}));
}

TEST(FrameReader, FieldsBeyondTheLimit_AreRefusedBeforeTheyArrive) {
  for (const size_t length : {size_t{9}, size_t{13}}) {  // of the key, of the value
    std::string bytes = Encode({.type = FrameType::kHello});
    bytes[length + 3] = 1;  // 16 MiB
    FrameReader reader;
    reader.Append(bytes.data(), bytes.size());
    EXPECT_EQ(reader.Next().status().code(), absl::StatusCode::kInvalidArgument) << length;
  }
}

TEST(FrameReader, BytesWanted_AreThoseOfTheFrameAndNoMore) {
  const Frame frame{.type = FrameType::kHello, .key = "key", .value = "value"};
  const std::string stream = Encode(frame) + "what follows";
  FrameReader reader;
  size_t read = 0;
  for (;;) {
    const size_t wanted = reader.BytesWanted();
    ASSERT_GT(wanted, 0u);
    reader.Append(stream.data() + read, wanted);
    read += wanted;
    const auto next = reader.Next();
    ASSERT_TRUE(next.ok());
    if (!next->has_value()) continue;
    EXPECT_EQ(**next, frame);
    break;
  }
  EXPECT_EQ(stream.substr(read), "what follows");
}

TEST(FrameReader, Noise_NeverHoldsMoreThanAFrame) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    FrameReader reader;
    std::string noise(1 + random() % 64, '\0');
    for (char& byte : noise) byte = static_cast<char>(random() % 16);
    reader.Append(noise.data(), noise.size());
    for (;;) {
      auto frame = reader.Next();
      if (!frame.ok() || !frame->has_value()) break;
      EXPECT_LE((*frame)->key.size() + (*frame)->value.size(), noise.size());
    }
  }
}

TEST(Tcp, MissingRanks_AreNamed) {
  auto listener = ListenTcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  TcpOptions options{.connect_timeout = absl::Milliseconds(200)};
  options.listener = *std::move(listener);
  const auto status = ConnectTcp(0, 3, std::move(options)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("ranks 1, 2 of 3 did not come"), absl::string_view::npos)
      << status;
}

TEST(Tcp, NobodyListens_SaysWhereToLook) {
  uint16_t port = 0;
  {
    auto listener = ListenTcp("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok());
    port = *PortOf(listener->get());
  }
  const auto status =
      ConnectTcp(1, 2, {.port = port, .connect_timeout = absl::Milliseconds(100)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("MASTER_ADDR"), absl::string_view::npos) << status;
}

TEST(Tcp, PortInUse_SuggestsAnother) {
  auto listener = ListenTcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  const auto status = ConnectTcp(0, 2, {.port = *PortOf(listener->get())}).status();
  EXPECT_NE(status.message().find("GEMINID_MASTER_PORT"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace geminid::collectives
