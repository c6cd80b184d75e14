#include "training/logs/phase.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace geminid::trainer {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::Optional;
using ::testing::StartsWith;

TEST(Phase, AfterTwoSeconds_SaysHowFarItIsEveryFive) {
  const Phase::Clock::time_point start;
  std::vector<std::string> lines;
  Phase phase("loading r1", start);
  for (int ms = 0; ms <= 12'000; ms += 500) {
    const PhaseProgress far = {.done = static_cast<uint64_t>(ms) << 20, .of = uint64_t{40} << 30};
    const std::optional<std::string> line = phase.LineAt(start + milliseconds(ms), far);
    if (line.has_value()) lines.push_back(*line);
  }
  EXPECT_THAT(lines, ElementsAre("geminid-train: loading r1: 2.0 GiB of 40.0 GiB, 2 s so far",
                                 "geminid-train: loading r1: 6.8 GiB of 40.0 GiB, 7 s so far",
                                 "geminid-train: loading r1: 11.7 GiB of 40.0 GiB, 12 s so far"));
}

TEST(Phase, OfThings_CountsThem) {
  const Phase::Clock::time_point start;
  Phase phase("validation", start);
  const PhaseProgress far = {.done = 4, .of = 80, .unit = "micro-batches"};
  EXPECT_EQ(phase.LineAt(start + milliseconds(1999), far), std::nullopt);
  EXPECT_THAT(phase.LineAt(start + milliseconds(2000), far),
              Optional(std::string("geminid-train: validation: 4 of 80 micro-batches, 2 s so far")));
}

TEST(Phase, OfUnknownLength_SaysItsTimeAlone) {
  const Phase::Clock::time_point start;
  Phase phase("starting the daemon", start);
  EXPECT_THAT(phase.LineAt(start + milliseconds(2400), {}),
              Optional(std::string("geminid-train: starting the daemon, 2 s so far")));
}

constexpr Patience kNone = {.first = milliseconds(0), .then = milliseconds(1)};

// The test's own function is the call. It lasts until the line has come.
TEST(PhaseTeller, DuringOneCall_SaysHowFarItIs) {
  std::promise<std::string> said;
  bool first = true;
  PhaseTeller teller([&](const std::string& line) {
    if (std::exchange(first, false)) said.set_value(line);
  }, kNone);
  const InPhase phase(&teller, "saving",
                      [] { return PhaseProgress{.done = 1, .of = 3, .unit = "files"}; });
  EXPECT_THAT(said.get_future().get(), StartsWith("geminid-train: saving: 1 of 3 files, "));
}

TEST(PhaseTeller, BeginningAnotherPhase_EndsTheOneBefore) {
  std::promise<void> said;
  PhaseTeller teller(
      [&](const std::string& line) {
        if (line.starts_with("geminid-train: validation, 0 s")) said.set_value();
      },
      {.first = milliseconds(0), .then = std::chrono::hours(1)});
  teller.Begin("hashing");
  teller.End();
  teller.Begin("loading");
  teller.Begin("validation");
  said.get_future().get();
}

TEST(PhaseTeller, WithNobodyToTell_AsksNobody) {
  PhaseTeller teller(nullptr);
  const InPhase phase(&teller, "saving", []() -> PhaseProgress {
    ADD_FAILURE() << "asked";
    return {};
  });
}

}  // namespace
}  // namespace geminid::trainer
