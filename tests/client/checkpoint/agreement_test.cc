#include "client/checkpoint/agreement.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/local/local_communicator.h"

namespace geminid::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The answer of one rank.
struct Answer {
  Phase phase = Phase::kWritePart;
  uint64_t step = 20;
  absl::Status mine{};
};

// Each rank's result of Agree.
std::vector<absl::Status> Exchange(const std::vector<Answer>& answers) {
  const auto ranks = collectives::MakeLocalCommunicators(static_cast<int>(answers.size()));
  std::vector<absl::Status> told(answers.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const Answer& answer = answers[rank];
      told[rank] = Agree(ranks[rank].get(), answer.phase, answer.step, answer.mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return told;
}

TEST(Agree, OnWhatAllHaveDone_IsOk) { EXPECT_THAT(Exchange({{}, {}, {}}), Each(absl::OkStatus())); }

TEST(Agree, OnWhatOneHasFailedToDo_NamesItAndItsReason) {
  const absl::Status full = absl::ResourceExhaustedError("no space left on device");
  const absl::Status named = absl::ResourceExhaustedError(
      "rank 1 failed to write its part of the checkpoint: no space left on device");
  EXPECT_THAT(Exchange({{}, {.mine = full}, {}}), ElementsAre(named, full, named));
}

TEST(Agree, OnTwoFailures_TellsTheOthersTheFirst) {
  const absl::Status first = absl::InternalError("a");
  const absl::Status second = absl::AbortedError("b");
  EXPECT_THAT(
      Exchange({{}, {.mine = first}, {.mine = second}}),
      ElementsAre(absl::InternalError("rank 1 failed to write its part of the checkpoint: a"),
                  first, second));
}

TEST(Agree, OnALongReason_CutsIt) {
  const absl::Status told =
      Exchange({{}, {.mine = absl::InternalError(std::string(1000, 'x'))}})[0];
  EXPECT_TRUE(absl::IsInternal(told)) << told;
  EXPECT_THAT(std::string(told.message()), HasSubstr(std::string(200, 'x')));
}

// An answer about an earlier checkpoint must not complete this one.
TEST(Agree, WithALateAnswer_IsRefusedByAllWithBothSteps) {
  for (const absl::Status& told : Exchange({{.step = 30}, {.step = 20}, {.step = 30}})) {
    EXPECT_TRUE(absl::IsFailedPrecondition(told)) << told;
    EXPECT_THAT(std::string(told.message()),
                AllOf(HasSubstr("checkpoint of step 20"), HasSubstr("checkpoint of step 30")));
  }
}

TEST(Agree, WithAnAnswerAboutAnotherPhase_IsRefusedByAllWithBothPhases) {
  for (const absl::Status& told : Exchange({{.phase = Phase::kBegin}, {}})) {
    EXPECT_TRUE(absl::IsFailedPrecondition(told)) << told;
    EXPECT_THAT(std::string(told.message()),
                AllOf(HasSubstr("to begin the checkpoint"), HasSubstr("to write its part")));
  }
}

TEST(Agree, WithARankThatKnowsNoStep_GivesItsErrorAndNotTheDifference) {
  const absl::Status lost = absl::DataLossError("gone");
  EXPECT_THAT(
      Exchange({{}, {.step = kNoStep, .mine = lost}}),
      ElementsAre(absl::DataLossError("rank 1 failed to write its part of the checkpoint: gone"),
                  lost));
}

}  // namespace
}  // namespace geminid::checkpoint
