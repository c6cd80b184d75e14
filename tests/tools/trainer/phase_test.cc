#include "tools/trainer/phase.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace geminid::trainer {
namespace {

using std::chrono::milliseconds;

TEST(Phase, AfterTwoSeconds_SaysHowFarItIsEveryFive) {
  const Phase::Clock::time_point start;
  std::vector<std::string> lines;
  Phase phase(
      "checking tokens", [&](const std::string& line) { lines.push_back(line); }, start);
  for (int ms = 0; ms <= 12'000; ms += 500) {
    phase.Bytes(static_cast<uint64_t>(ms) << 20, uint64_t{40} << 30, start + milliseconds(ms));
  }
  EXPECT_THAT(lines, testing::ElementsAre(
                         "geminid-train: checking tokens: 2.0 GiB of 40.0 GiB\n",
                         "geminid-train: checking tokens: 6.8 GiB of 40.0 GiB\n",
                         "geminid-train: checking tokens: 11.7 GiB of 40.0 GiB\n"));
}

TEST(Phase, OfThings_CountsThem) {
  const Phase::Clock::time_point start;
  std::string said;
  Phase phase(
      "validation", [&](const std::string& line) { said += line; }, start);
  phase.Count(3, 80, "micro-batches", start + milliseconds(1999));
  EXPECT_EQ(said, "");
  phase.Count(4, 80, "micro-batches", start + milliseconds(2000));
  EXPECT_EQ(said, "geminid-train: validation: 4 of 80 micro-batches\n");
}

TEST(Phase, WithNobodyToTell_IsSilent) {
  const Phase::Clock::time_point start;
  Phase("saving", nullptr, start).Bytes(1, 2, start + milliseconds(9000));
}

}  // namespace
}  // namespace geminid::trainer
