// State that goes from ranks on some hosts to ranks on others: threads are the ranks, and vectors
// the memory of the hosts.
#include "training/scaling/spread_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/local/local_communicator.h"
#include "tests/training/scaling/rank_of_test.h"
#include "training/launch/host_spread.h"

namespace geminid::trainer {
namespace {

using collectives::Communicator;
using testing::HasSubstr;
using zero::ParameterId;
using zero::StateKind;

using Images = std::vector<std::vector<std::byte>>;  // by host

constexpr uint64_t kNumber = 5;
const checkpoint::RunState kRun = {.data_position = 99, .random_state = {7, 8, 9, 10}};

void OnRanks(int ranks, const std::function<void(Communicator&)>& body) {
  auto world = collectives::MakeLocalCommunicators(ranks);
  std::vector<std::jthread> threads;
  for (auto& communicator : world) {
    threads.emplace_back([&body, &communicator] { body(*communicator); });
  }
}

RankOfTest Trained(int rank, int ranks) {
  RankOfTest state(static_cast<uint64_t>(rank), static_cast<uint64_t>(ranks),
                   zero::DataType::kBFloat16);
  for (const uint32_t id : {0U, 1U}) {
    for (const StateKind kind : zero::kStateKinds) {
      for (uint64_t at = 0; at < kElements; ++at) {
        state.At(ParameterId{id}, kind)[at] = ValueOf(id, kind, at);
      }
    }
  }
  return state;
}

// What ranks on `before` leave on the first `hosts_after` hosts.
Images Left(const std::vector<int>& before, size_t hosts_after) {
  Images images(hosts_after);
  const std::vector<size_t> hosts = HostByRank(before);
  const int ranks = static_cast<int>(hosts.size());
  OnRanks(ranks, [&](Communicator& communicator) {
    const int rank = communicator.Rank();
    const size_t host = hosts[static_cast<size_t>(rank)];
    RankOfTest state = Trained(rank, ranks);
    const StateImage image = ImageOf(&state);
    SpreadState spread(&communicator, &image, hosts);
    uint64_t number = rank == 0 ? kNumber : 0;
    ASSERT_TRUE(spread.PlanToLeave(hosts_after, &number).ok());
    EXPECT_EQ(number, kNumber);
    ASSERT_EQ(spread.here() != nullptr, host < hosts_after);
    const bool is_first = rank == 0 || hosts[static_cast<size_t>(rank) - 1] != host;
    if (is_first && spread.here() != nullptr) {
      images[host].resize(image.BytesWithTable(*spread.here()));
      image.WriteTable(*spread.here(), images[host]);
    }
    ASSERT_TRUE(communicator.Barrier().ok());
    if (rank == 0) {
      ASSERT_TRUE(image.WritePosition({state.progress, kRun, {}}, images[0]).ok());
    }
    const bool stays = spread.here() != nullptr;
    std::vector<std::byte> none;
    ASSERT_TRUE(spread.Leave(stays ? images[host] : none).ok());
  });
  return images;
}

// Of shards of ranks on `after`, the bytes that their hosts did not have.
uint64_t TakenByAll(const std::vector<int>& after, Images images) {
  const std::vector<size_t> hosts = HostByRank(after);
  const int ranks = static_cast<int>(hosts.size());
  images.resize(after.size());
  std::vector<uint64_t> received(hosts.size());
  OnRanks(ranks, [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.Rank());
    RankOfTest state(rank, static_cast<uint64_t>(ranks), zero::DataType::kBFloat16);
    const StateImage image = ImageOf(&state);
    SpreadState spread(&communicator, &image, hosts);
    const auto position = spread.Take(images[hosts[rank]]);
    ASSERT_TRUE(position.ok()) << position.status();
    EXPECT_EQ(position->progress.step, 12u);
    EXPECT_EQ(position->progress.tensor_state, state.progress.tensor_state);
    EXPECT_EQ(position->run, kRun);
    for (const StateRange& mine : image.Shards()) {
      const auto id = static_cast<uint32_t>(mine.parameter);
      for (const StateKind kind : zero::kStateKinds) {
        if (!state.HasState(ParameterId{id}, kind)) continue;
        for (uint64_t at = mine.first; at < mine.first + mine.elements; ++at) {
          EXPECT_EQ(state.At(ParameterId{id}, kind)[at], ValueOf(id, kind, at)) << id << " " << at;
        }
      }
    }
    received[rank] = spread.received_bytes();
  });
  uint64_t all = 0;
  for (const uint64_t bytes : received) all += bytes;
  return all;
}

class SpreadStates
    : public ::testing::TestWithParam<std::pair<std::vector<int>, std::vector<int>>> {};

TEST_P(SpreadStates, OfRanksOnSomeHosts_AreTakenByRanksOnOthers) {
  const auto& [before, after] = GetParam();
  TakenByAll(after, Left(before, std::min(before.size(), after.size())));
}

INSTANTIATE_TEST_SUITE_P(
    Hosts, SpreadStates,
    ::testing::Values(std::pair(std::vector<int>{2, 2}, std::vector<int>{2}),
                      std::pair(std::vector<int>{2, 2}, std::vector<int>{2, 1}),
                      std::pair(std::vector<int>{2, 1}, std::vector<int>{2, 3}),
                      std::pair(std::vector<int>{1, 1}, std::vector<int>{1, 1, 2}),
                      std::pair(std::vector<int>{2, 2, 2}, std::vector<int>{2, 1}),
                      std::pair(std::vector<int>{1, 2, 3}, std::vector<int>{1}),
                      std::pair(std::vector<int>{3, 3}, std::vector<int>{3, 3})));

// One parameter of ten elements with 8 bytes each (master in fp32, two moments in bf16), and a
// frozen one with 4. Ranks 0, 1 | 2, 3 have 2 or 3 elements each; of three ranks 0, 1 | 2 the first
// two have 6, of which one is at the second host, and the third 4, which are all there.
TEST(SpreadState, OfElementsThatStayOnTheirHost_DoesNotSendThem) {
  constexpr uint64_t kBytesOfElement = 8 + 4;
  EXPECT_EQ(TakenByAll({2, 1}, Left({2, 2}, 2)), 1 * kBytesOfElement);
  EXPECT_EQ(TakenByAll({2, 2}, Left({2, 2}, 2)), 0u);
  EXPECT_EQ(TakenByAll({2}, Left({2, 2}, 1)), 0u) << "they were left there";
}

TEST(SpreadState, OfAnImageThatLacksAHostsPart_IsRefusedByAll) {
  Images images = Left({1, 1}, 2);
  images[1].clear();
  OnRanks(2, [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.Rank());
    RankOfTest state(rank, 2, zero::DataType::kBFloat16);
    const StateImage image = ImageOf(&state);
    const auto position = SpreadState(&communicator, &image, {0, 1}).Take(images[rank]);
    EXPECT_THAT(std::string(position.status().message()),
                HasSubstr("no host has elements 5 to 10 of parameter 0, which rank 1 is to have"));
  });
}

TEST(SpreadState, OfATableThatIsBroken_IsRefused) {
  RankOfTest state = Trained(0, 1);
  const StateImage image = ImageOf(&state);
  std::vector<std::byte> bytes(image.BytesWithTable({{0, 0, 4}, {1, 0, 4}}));
  image.WriteTable({{0, 0, 4}, {1, 0, 4}}, bytes);
  EXPECT_EQ(image.ReadTable(bytes)->size(), 2u);
  const std::vector<StateRange> beyond = {{0, 0, 4}, {1, 8, 4}};
  image.WriteTable(beyond, bytes);
  EXPECT_TRUE(absl::IsInternal(image.ReadTable(bytes).status()));
  std::ranges::fill(bytes, std::byte{0xff});
  EXPECT_TRUE(absl::IsInternal(image.ReadTable(bytes).status()));
  bytes.resize(image.bytes() + 3);
  EXPECT_TRUE(absl::IsInternal(image.ReadTable(bytes).status()));
  bytes.resize(image.bytes() - 1);
  EXPECT_TRUE(absl::IsInternal(image.ReadTable(bytes).status()));
  bytes.resize(image.bytes());
  EXPECT_EQ(image.ReadTable(bytes)->size(), 2u) << "without a table it has all";
}

}  // namespace
}  // namespace geminid::trainer
