#include "training/launch/handover_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>

namespace geminid::trainer {
namespace {

constexpr uint64_t kBytes = 10000;
constexpr uint64_t kAvailable = uint64_t{1} << 30;

// The memory as another process inherits it.
std::unique_ptr<HandoverMemory> Inherited(const HandoverMemory& memory) {
  const std::string fd = std::to_string(dup(memory.fd()));
  return HandoverMemory::From([&](const char* name) -> const char* {
    return std::string(name) == kHandoverVariable ? fd.c_str() : nullptr;
  });
}

Handover ToFour() {
  return {.request = 7,
          .ranks_before = 2,
          .ranks_after = 4,
          .step = 12,
          .bytes = kBytes,
          .began = absl::UnixEpoch() + absl::Seconds(3)};
}

uint64_t SizeOf(const HandoverMemory& memory) {
  struct stat info = {};
  fstat(memory.fd(), &info);
  return static_cast<uint64_t>(info.st_size);
}

TEST(HandoverMemory, BeforeItIsComplete_HasNoStateForAnybody) {
  const auto launcher = HandoverMemory::Create();
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  const auto rank = Inherited(**launcher);
  ASSERT_NE(rank, nullptr);
  EXPECT_EQ((*launcher)->complete(), std::nullopt);
  ASSERT_TRUE(rank->Begin(ToFour(), kAvailable).ok());
  EXPECT_EQ((*launcher)->complete(), std::nullopt);
  EXPECT_EQ((*launcher)->untold_request(), 7u);
}

TEST(HandoverMemory, Complete_HasWhatWasWrittenForWhoeverComesNext) {
  const auto launcher = HandoverMemory::Create();
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  {
    const auto old = Inherited(**launcher);
    ASSERT_TRUE(old->Begin(ToFour(), kAvailable).ok());
    const auto mapping = old->Map(kBytes);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    const auto state = HandoverMemory::StateIn(*mapping);
    ASSERT_EQ(state.size(), kBytes);
    std::memset(state.data(), 42, state.size());
    old->Complete();
  }
  const auto left = (*launcher)->complete();
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(left->number, 1u);
  EXPECT_EQ(left->request, 7u);
  EXPECT_EQ(left->ranks_before, 2);
  EXPECT_EQ(left->ranks_after, 4);
  EXPECT_EQ(left->step, 12u);
  EXPECT_EQ(left->bytes, kBytes);
  EXPECT_EQ(left->began, absl::UnixEpoch() + absl::Seconds(3));
  const auto next = Inherited(**launcher);
  const auto mapping = next->Map(left->bytes);
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(HandoverMemory::StateIn(*mapping)[kBytes - 1], std::byte{42});
}

TEST(HandoverMemory, OfARunThatIsShared_HasItsRangeAndTimesForLaterGroups) {
  const auto launcher = HandoverMemory::Create();
  ASSERT_TRUE(launcher.ok()) << launcher.status();
  EXPECT_EQ((*launcher)->share(), std::nullopt);
  (*launcher)->SetShare({1, 4});
  {
    const auto rank = Inherited(**launcher);
    EXPECT_EQ(rank->share(), (RanksRange{1, 4}));
    EXPECT_TRUE(rank->SequenceSeconds().empty());
    rank->NoteSequenceSeconds(1, 0.5);
    rank->NoteSequenceSeconds(4, 0.2);
    rank->NoteSequenceSeconds(1, 0.4);
    ASSERT_TRUE(rank->Begin(ToFour(), kAvailable).ok());
    rank->Complete();
  }
  (*launcher)->Release();
  const std::map<int, double> seconds = Inherited(**launcher)->SequenceSeconds();
  EXPECT_EQ(seconds, (std::map<int, double>{{1, 0.4}, {4, 0.2}}));
}

TEST(HandoverMemory, OfMoreNumbersThanItRemembers_HasTheFirst) {
  const auto memory = HandoverMemory::Create();
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (int ranks = 1; ranks <= 1000; ++ranks) (*memory)->NoteSequenceSeconds(ranks, ranks);
  const std::map<int, double> seconds = (*memory)->SequenceSeconds();
  EXPECT_EQ(seconds.size(), static_cast<size_t>(HandoverMemory::kNumbersTimed));
  EXPECT_EQ(seconds.rbegin()->first, HandoverMemory::kNumbersTimed);
}

TEST(HandoverMemory, Released_GivesTheMemoryBackAndNumbersTheNext) {
  const auto memory = HandoverMemory::Create();
  ASSERT_TRUE(memory.ok());
  const uint64_t empty = SizeOf(**memory);
  ASSERT_TRUE((*memory)->Begin(ToFour(), kAvailable).ok());
  (*memory)->Complete();
  EXPECT_EQ(SizeOf(**memory), empty + kBytes);
  (*memory)->NoteTold();
  EXPECT_EQ((*memory)->untold_request(), 0u);
  (*memory)->Release();
  EXPECT_EQ((*memory)->complete(), std::nullopt);
  EXPECT_EQ(SizeOf(**memory), empty);
  ASSERT_TRUE((*memory)->Begin(ToFour(), kAvailable).ok());
  (*memory)->Complete();
  EXPECT_EQ((*memory)->complete()->number, 2u);
}

// The system would not refuse the memory but kill processes.
TEST(HandoverMemory, OfMoreThanTheMachineHasLeft_IsRefusedWithTheNumbers) {
  const auto memory = HandoverMemory::Create();
  ASSERT_TRUE(memory.ok());
  const absl::Status refused = (*memory)->Begin(ToFour(), kBytes - 1);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("resume it with 4 ranks"));
  EXPECT_EQ((*memory)->complete(), std::nullopt);
}

TEST(HandoverMemory, OfAWishForAnotherHost_HasTheAnswerForTheRankThatWaits) {
  const auto launcher = HandoverMemory::Create();
  ASSERT_TRUE(launcher.ok());
  const auto rank = Inherited(**launcher);
  EXPECT_EQ((*launcher)->wanted(), std::nullopt);
  const MoveRequest move = {.request = 9,
                            .host = "user@beta",
                            .ranks = 2,
                            .state_bytes = kBytes,
                            .rank_device_bytes = 5,
                            .host_bytes = 6,
                            .data = "19 bytes, CRC-32C 1a2b3c4d"};
  rank->Want(move);
  EXPECT_EQ((*launcher)->wanted(), move);
  EXPECT_EQ(rank->answer(9), std::nullopt);
  (*launcher)->Answer(9, absl::ResourceExhaustedError("beta: it is full"));
  EXPECT_EQ(rank->answer(9), absl::ResourceExhaustedError("beta: it is full"));
  EXPECT_EQ(rank->answer(8), std::nullopt);
  // Restarted ranks make the same request again.
  rank->Unwant();
  EXPECT_EQ((*launcher)->wanted(), std::nullopt);
  rank->Want(move);
  EXPECT_EQ(rank->answer(9), std::nullopt) << "that was to the ranks before";
}

TEST(HandoverMemory, OfAHandoverToAnotherHost_SaysWhereAndWhatWasRemembered) {
  const auto memory = HandoverMemory::Create();
  ASSERT_TRUE(memory.ok());
  Handover handover = ToFour();
  handover.host = "beta";
  handover.words = "data=2";
  ASSERT_TRUE((*memory)->Begin(handover, kAvailable).ok());
  (*memory)->Complete();
  EXPECT_EQ((*memory)->complete()->host, "beta");
  EXPECT_EQ((*memory)->complete()->words, "data=2");
  EXPECT_FALSE((*memory)->complete()->followed);
  (*memory)->NoteFollowed();
  EXPECT_TRUE((*memory)->complete()->followed);
}

// A run numbers its handovers, on whichever host they are.
TEST(HandoverMemory, OfStateThatArrives_KeepsItsNumberAndGoesOnFromIt) {
  const auto memory = HandoverMemory::Create();
  ASSERT_TRUE(memory.ok());
  Handover handover = ToFour();
  handover.number = 5;
  handover.host = "here";
  ASSERT_TRUE((*memory)->Reserve(kBytes, kAvailable).ok());
  EXPECT_EQ((*memory)->complete(), std::nullopt);
  ASSERT_TRUE((*memory)->Arrive(handover, kAvailable).ok());
  EXPECT_EQ((*memory)->complete(), std::nullopt);
  (*memory)->Complete();
  EXPECT_EQ((*memory)->complete()->number, 5u);
  EXPECT_EQ((*memory)->complete()->host, "") << "it is there";
  EXPECT_EQ((*memory)->untold_request(), 0u) << "whoever asked is at another host";
  ASSERT_TRUE((*memory)->Begin(ToFour(), kAvailable).ok());
  (*memory)->Complete();
  EXPECT_EQ((*memory)->complete()->number, 6u);
}

TEST(HandoverMemory, OfLessThanItIsSaidToHave_IsNotMapped) {
  const auto memory = HandoverMemory::Create();
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE((*memory)->Begin(ToFour(), kAvailable).ok());
  EXPECT_TRUE((*memory)->Map(kBytes).ok());
  EXPECT_TRUE(absl::IsDataLoss((*memory)->Map(kBytes + 1).status()));
}

// Of a run over several hosts.
TEST(HandoverMemory, OfAPartOfTheState_HasPagesForThatAlone) {
  const auto memory = HandoverMemory::Create();
  ASSERT_TRUE(memory.ok());
  Handover handover = ToFour();
  handover.number = 9;
  handover.bytes = uint64_t{64} << 20;
  constexpr uint64_t kMiddle = uint64_t{32} << 20, kPart = 8192;
  ASSERT_TRUE((*memory)->BeginParts(handover, {{0, 100}, {kMiddle, kPart}}, kPart + 100).ok());
  EXPECT_EQ((*memory)->mapped_bytes(), handover.bytes);
  EXPECT_EQ((*memory)->held_bytes(), kPart + 100);
  struct stat info = {};
  fstat((*memory)->fd(), &info);
  constexpr uint64_t kBlock = 512, kPages = 4;  // of the record, the begin, and the part
  EXPECT_LE(static_cast<uint64_t>(info.st_blocks) * kBlock, kPart + kPages * 4096);
  EXPECT_TRUE((*memory)->Map(handover.bytes).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(
      (*memory)->BeginParts(handover, {{0, 100}, {kMiddle, kPart}}, kPart)));
}

TEST(HandoverMemory, OfTheFirstHostsState_AdoptsThePartThatWasLeftForIt) {
  const auto memory = HandoverMemory::Create();
  ASSERT_TRUE(memory.ok());
  Handover handover = ToFour();
  handover.number = 9;
  ASSERT_TRUE((*memory)->BeginParts(handover, {{0, kBytes}}, kAvailable).ok());
  EXPECT_EQ((*memory)->complete(), std::nullopt);
  (*memory)->Adopt(std::nullopt);
  EXPECT_EQ((*memory)->held_bytes(), kBytes) << "ranks are leaving it";
  (*memory)->Adopt(handover);
  ASSERT_TRUE((*memory)->complete().has_value());
  EXPECT_EQ((*memory)->complete()->number, 9u);
  EXPECT_EQ((*memory)->complete()->step, 12u);
  EXPECT_EQ((*memory)->mapped_bytes(), kBytes);
  (*memory)->Adopt(std::nullopt);
  EXPECT_EQ((*memory)->complete(), std::nullopt);
  EXPECT_EQ((*memory)->mapped_bytes(), 0u);
  EXPECT_EQ(SizeOf(**memory), 4096u);
}

TEST(HandoverMemory, OfAStateOfWhichItHasNothing_AdoptsItWithoutAnOldPart) {
  const auto memory = HandoverMemory::Create();
  ASSERT_TRUE(memory.ok());
  Handover handover = ToFour();
  handover.number = 9;
  ASSERT_TRUE((*memory)->BeginParts(handover, {{0, kBytes}}, kAvailable).ok());
  handover.number = 10;
  (*memory)->Adopt(handover);
  ASSERT_TRUE((*memory)->complete().has_value());
  EXPECT_EQ((*memory)->complete()->number, 10u);
  EXPECT_EQ((*memory)->mapped_bytes(), 0u);
  EXPECT_EQ((*memory)->held_bytes(), 0u);
  EXPECT_EQ((*memory)->NextNumber(), 11u);
}

TEST(HandoverMemory, OfARankThatHasNone_IsNone) {
  EXPECT_EQ(HandoverMemory::From([](const char*) -> const char* { return nullptr; }), nullptr);
  EXPECT_EQ(HandoverMemory::From([](const char*) { return "some"; }), nullptr);
}

}  // namespace
}  // namespace geminid::trainer
