// The daemon is killed under training, again and again: the run does not notice, and its weights
// are those of a run whose daemon lived.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <set>

#include "base/counter_random.h"
#include "tests/end_to_end/training_process.h"

namespace geminid {
namespace {

using ::testing::IsEmpty;

constexpr int kSeconds = 120;  // the machine may be busy
constexpr int kKills = 20;
constexpr int kKillsPerRun = 5;
constexpr uint64_t kLongestPauseMilliseconds = 150;

// Two ranks on an arena that does not hold the model: chunks come and go at every operator.
std::vector<std::string> Flags(const std::string& steps) {
  return {"--model", "gpt2-tiny", "--ranks",         "2",       "--batch",  "4",
          "--steps", steps,       "--device-memory", "1500KiB", "--export", kExportHere};
}

class Restart : public ::testing::Test {
 protected:
  static void ExpectNothingIsLeft(const TrainingProcess& run, const std::set<pid_t>& daemons) {
    for (const pid_t pid : daemons) EXPECT_TRUE(IsGone(pid, kSeconds)) << "daemon " << pid;
    for (const pid_t pid : run.Holders()) EXPECT_TRUE(IsGone(pid, kSeconds)) << "holder " << pid;
    EXPECT_THAT(run.Leftovers(), IsEmpty());
  }
};

// Of several that come one after the other, `seed` chooses the instants.
int KillSome(const TrainingProcess& run, uint64_t seed, std::set<pid_t>* daemons) {
  int kills = 0;
  for (uint64_t i = 0; kills < kKillsPerRun; ++i) {
    const uint64_t pause = base::RandomBits(seed, i) % kLongestPauseMilliseconds;
    poll(nullptr, 0, static_cast<int>(pause));
    const std::vector<pid_t> there = run.Children("geminid");
    if (there.empty()) {
      if (run.Children("geminid-train").empty()) break;  // the run is over
      continue;
    }
    daemons->insert(there.front());
    kills += kill(there.front(), SIGKILL) == 0 ? 1 : 0;
  }
  return kills;
}

TEST_F(Restart, DaemonKilledAtRandomInstants_LeavesTheSameWeightsAndNothingElse) {
  TrainingProcess undisturbed(Flags("400"));
  ASSERT_EQ(undisturbed.WaitForEnd(kSeconds), 0) << undisturbed.Words();
  const std::string weights = undisturbed.ExportedBytes();
  ASSERT_GT(weights.size(), 400'000u);
  int kills = 0;
  for (uint64_t seed = 0; kills < kKills; ++seed) {
    ASSERT_LT(seed, 20u) << "the runs end before they are disturbed";
    TrainingProcess run(Flags("400"));
    ASSERT_TRUE(run.WaitForWords("step 1/")) << run.Words();
    std::set<pid_t> daemons;
    kills += KillSome(run, seed, &daemons);
    ASSERT_EQ(run.WaitForEnd(kSeconds), 0) << "seed " << seed << ": " << run.Words();
    EXPECT_TRUE(run.ExportedBytes() == weights) << "seed " << seed;
    ExpectNothingIsLeft(run, daemons);
  }
}

}  // namespace
}  // namespace geminid
