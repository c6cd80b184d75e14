// The daemon is killed under training, again and again, and so are ranks, one or all, with the
// daemon or without: the run goes on, and its weights are those of a run that was left alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <set>

#include "base/counter_random.h"
#include "tests/base/long_tests.h"
#include "tests/end_to_end/training_process.h"

namespace geminid {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kSeconds = 120;  // the machine may be busy
// Each kind of kill of KillRanks occurs once in a run.
const int kKillsPerRun = LongTests() ? 6 : 3;
const int kKills = LongTests() ? 24 : 6;
// The longer a pause is, the more runs end before they have been disturbed often enough.
constexpr uint64_t kLongestPauseMilliseconds = 150;
constexpr uint64_t kLongestPauseBetweenRanksMilliseconds = 400;

// Two ranks on an arena that does not hold the model: chunks come and go at every operator.
std::vector<std::string> Flags(const std::string& steps) {
  return {"--model", "gpt2-tiny", "--ranks",         "2",       "--batch",  "4",
          "--steps", steps,       "--device-memory", "1500KiB", "--export", kExportHere};
}

// The daemon's tickets carry each update, too.
std::vector<std::string> StreamedFlags(const std::string& steps) {
  std::vector<std::string> flags = Flags(steps);
  flags.insert(flags.end(), {"--optimizer-state", "streamed"});
  return flags;
}

class Restart : public ::testing::Test {};

void ExpectNothingIsLeft(const TrainingProcess& run, const std::set<pid_t>& daemons) {
  for (const pid_t pid : daemons) EXPECT_TRUE(IsGone(pid, kSeconds)) << "daemon " << pid;
  for (const pid_t pid : run.Holders()) EXPECT_TRUE(IsGone(pid, kSeconds)) << "holder " << pid;
  EXPECT_THAT(run.Leftovers(), IsEmpty());
}

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

void ExpectTheSameWeightsWithoutDaemons(const std::vector<std::string>& flags, int kills_wanted) {
  TrainingProcess undisturbed(flags);
  ASSERT_EQ(undisturbed.WaitForEnd(kSeconds), 0) << undisturbed.Words();
  const std::string weights = undisturbed.ExportedBytes();
  ASSERT_GT(weights.size(), 400'000u);
  int kills = 0;
  for (uint64_t seed = 0; kills < kills_wanted; ++seed) {
    ASSERT_LT(seed, 20u) << "the runs end before they are disturbed";
    TrainingProcess run(flags);
    ASSERT_TRUE(run.WaitForWords("step 1/")) << run.Words();
    std::set<pid_t> daemons;
    kills += KillSome(run, seed, &daemons);
    ASSERT_EQ(run.WaitForEnd(kSeconds), 0) << "seed " << seed << ": " << run.Words();
    EXPECT_TRUE(run.ExportedBytes() == weights) << "seed " << seed;
    ExpectNothingIsLeft(run, daemons);
  }
}

TEST_F(Restart, DaemonKilledAtRandomInstants_LeavesTheSameWeightsAndNothingElse) {
  ExpectTheSameWeightsWithoutDaemons(Flags("200"), kKills);
}

TEST_F(Restart, DaemonKilledWhileStateIsStreamed_LeavesTheSameWeightsAndNothingElse) {
  ExpectTheSameWeightsWithoutDaemons(StreamedFlags("200"), kKillsPerRun);
}

// One rank, all of them, or one with the daemon: in turn.
int KillRanks(const TrainingProcess& run, uint64_t seed, std::set<pid_t>* daemons) {
  int kills = 0;
  for (uint64_t i = 0; kills < kKillsPerRun; ++i) {
    const uint64_t pause = base::RandomBits(seed, i) % kLongestPauseBetweenRanksMilliseconds;
    poll(nullptr, 0, static_cast<int>(pause));
    std::vector<pid_t> victims = run.Children("geminid-train");
    if (victims.empty()) {
      if (run.Children("geminid").empty()) break;  // the run is over
      continue;
    }
    const int kind = kills % 3;
    if (kind != 1) victims = {victims[base::RandomBits(seed + 1000, i) % victims.size()]};
    if (kind == 2) {
      for (const pid_t daemon : run.Children("geminid")) {
        daemons->insert(daemon);
        victims.push_back(daemon);
      }
    }
    int killed = 0;
    for (const pid_t victim : victims) killed += kill(victim, SIGKILL) == 0 ? 1 : 0;
    kills += killed > 0 ? 1 : 0;
  }
  return kills;
}

int Count(const std::string& words, const std::string& what) {
  int count = 0;
  for (size_t at = 0; (at = words.find(what, at)) != std::string::npos; ++at) ++count;
  return count;
}

// Runs of these flags, each disturbed kKillsPerRun times, until there were so many kills.
void ExpectTheSameWeights(std::vector<std::string> flags, int kills_wanted) {
  TrainingProcess undisturbed(flags);
  ASSERT_EQ(undisturbed.WaitForEnd(kSeconds), 0) << undisturbed.Words();
  const std::string weights = undisturbed.ExportedBytes();
  ASSERT_GT(weights.size(), 400'000u);
  flags.insert(flags.end(), {"--restarts", "100", "--log", kLogHere});
  int kills = 0;
  int resumed = 0;
  for (uint64_t seed = 100; kills < kills_wanted; ++seed) {
    ASSERT_LT(seed, 120u) << "the runs end before they are disturbed";
    TrainingProcess run(flags);
    // Before, a rank may not have committed any step, and a run begins anew, as it should.
    ASSERT_TRUE(run.WaitForSteps(2)) << run.Words();
    std::set<pid_t> daemons;
    kills += KillRanks(run, seed, &daemons);
    ASSERT_EQ(run.WaitForEnd(kSeconds), 0) << "seed " << seed << ": " << run.Words();
    EXPECT_TRUE(run.ExportedBytes() == weights) << "seed " << seed << ": " << run.Words();
    ExpectNothingIsLeft(run, daemons);
    const std::string words = run.Words();
    resumed += Count(words, "from memory;");
    const int anew = Count(words, "not all ranks left their state");
    EXPECT_EQ(anew, 0) << "seed " << seed << ": " << words;
  }
  EXPECT_GE(resumed, kills_wanted / kKillsPerRun);  // a start may be killed before it says so
}

TEST_F(Restart, RanksKilledAtRandomInstants_ComeBackWithTheSameWeights) {
  ExpectTheSameWeights(Flags("150"), kKills);
}

TEST_F(Restart, RanksKilledWhileStateIsStreamed_ComeBackWithTheSameWeights) {
  ExpectTheSameWeights(StreamedFlags("150"), kKillsPerRun);
}

class RestartOfCutModels : public Restart {};

TEST_F(RestartOfCutModels, RanksKilledAtRandomInstants_ComeBackWithTheSameWeights) {
  // Pipelines and cut layers come back below, with optimizers that ask more of it.
  const std::vector<const char*> meshes =
      LongTests() ? std::vector{"sequence=ring:2", "pipeline=2", "tensor=1d:2"}
                  : std::vector{"sequence=ring:2"};
  for (const char* axes : meshes) {
    SCOPED_TRACE(axes);
    std::vector<std::string> flags = Flags("150");
    flags.insert(flags.end(), {"--parallel", axes, "--dtype", "fp32"});
    ExpectTheSameWeights(flags, kKillsPerRun);
  }
}

class RestartOfWholeTensors : public Restart {};

// What is known of a tensor is known on all ranks, whoever of them has parts of it.
TEST_F(RestartOfWholeTensors, RanksKilledAtRandomInstants_ComeBackWithTheSameWeights) {
  for (const auto& [axes, optimizer] :
       {std::pair("pipeline=2", "came"), std::pair("tensor=1d:2", "lamb")}) {
    SCOPED_TRACE(axes);
    std::vector<std::string> flags = Flags("150");
    flags.insert(flags.end(),
                 {"--parallel", axes, "--dtype", "fp32", "--optimizer", optimizer, "--lr", "1e-4"});
    ExpectTheSameWeights(flags, kKillsPerRun);
  }
}

TEST_F(RestartOfCutModels, RanksWithSpreadExperts_ComeBackWithTheSameWeights) {
  std::vector<std::string> flags = Flags("150");
  *(std::ranges::find(flags, "--model") + 1) = "mixtral-tiny";
  flags.insert(flags.end(), {"--parallel", "expert=2"});
  ExpectTheSameWeights(flags, kKillsPerRun);
}

// Whoever has said goodbye to the daemon has nothing left there, and the run need not go on.
TEST_F(Restart, RanksKilledBetweenTheirGoodbyeAndTheirEnd_AreDone) {
  std::vector<std::string> flags = Flags("5");
  TrainingProcess undisturbed(flags);
  ASSERT_EQ(undisturbed.WaitForEnd(kSeconds), 0) << undisturbed.Words();
  flags.insert(flags.end(), {"--restarts", "1"});
  TrainingProcess run(
      flags, {"LD_PRELOAD=" GEMINID_KILLED_AT_EXIT, "ASAN_OPTIONS=verify_asan_link_order=0"});
  EXPECT_EQ(run.WaitForEnd(kSeconds), 0) << run.Words();
  EXPECT_THAT(run.Words(), HasSubstr("was killed by signal 9 (Killed) after the run was done"));
  EXPECT_THAT(run.Words(), Not(HasSubstr("started again")));
  EXPECT_TRUE(run.ExportedBytes() == undisturbed.ExportedBytes());
  EXPECT_THAT(run.Leftovers(), IsEmpty());
}

TEST_F(Restart, RanksThatDieMoreOftenThanAllowed_EndTheRun) {
  std::vector<std::string> flags = Flags("100000");
  flags.insert(flags.end(), {"--restarts", "1"});
  TrainingProcess run(flags);
  ASSERT_TRUE(run.WaitForWords("step 1/")) << run.Words();
  kill(run.Children("geminid-train").front(), SIGKILL);
  ASSERT_TRUE(run.WaitForWords("from memory")) << run.Words();
  kill(run.Children("geminid-train").front(), SIGKILL);
  EXPECT_EQ(run.WaitForEnd(kSeconds), 1) << run.Words();
  EXPECT_THAT(run.Words(), HasSubstr("all ranks are started again (1 of 1)"));
  EXPECT_THAT(run.Leftovers(), IsEmpty());
}

}  // namespace
}  // namespace geminid
