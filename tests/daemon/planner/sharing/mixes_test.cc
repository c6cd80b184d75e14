// Random mixes of jobs, run to their ends by ShareByGoodput and by other policies. With
// GEMINID_TESTS_LONG=1: a hundred thousand mixes, and the table of the page.
#include "tests/daemon/planner/sharing/mixes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "daemon/planner/sharing/sharing_problem.h"
#include "tests/base/long_tests.h"
#include "tests/daemon/planner/sharing/simulation.h"

namespace geminid::planner {
namespace {

constexpr SharingSettings kSettings;

// Results of one policy, each relative to the best policy of its mix.
struct Ratios {
  std::string name;
  std::vector<double> makespan{};
  std::vector<double> completion{};

  void Add(double makespan_ratio, double completion_ratio) {
    makespan.push_back(makespan_ratio);
    completion.push_back(completion_ratio);
  }
};

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double Percentile95(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() * 95 / 100);
  std::ranges::nth_element(values, at);
  return *at;
}

void Print(const std::string& title, const std::vector<Ratios>& table) {
  std::string text = absl::StrFormat("%s, %d mixes; each beside the best found\n", title,
                                     table.front().makespan.size());
  for (const Ratios& row : table) {
    absl::StrAppendFormat(&text, "| %s | %.3f | %.3f | %.3f | %.3f |\n", row.name,
                          Mean(row.makespan), Percentile95(row.makespan), Mean(row.completion),
                          Percentile95(row.completion));
  }
  std::fputs(text.c_str(), stdout);
}

TEST(ShareByGoodput, OfRandomMixes_EndsWithinFivePercentOfTheBestPolicy) {
  for (const bool together : {true, false}) {
    std::vector<Ratios> table = {{"by goodput"},
                                 {"first come, first served"},
                                 {"equal shares"},
                                 {"by goodput, work not known"}};
    const std::uint64_t mixes = LongTests() ? 50'000 : 2000;
    for (std::uint64_t seed = 1; seed <= mixes; ++seed) {
      const Mix mix = MakeMix(seed, {.together = together});
      const std::vector<Outcome> outcomes = {
          Simulate(mix, kSettings.move_seconds, ByGoodput(kSettings)),
          Simulate(mix, kSettings.move_seconds, Fifo()),
          Simulate(mix, kSettings.move_seconds, EqualShares()),
          Simulate(mix, kSettings.move_seconds, ByGoodput(kSettings, /*work_known=*/false))};
      const double makespan = std::ranges::min(outcomes, {}, &Outcome::makespan).makespan;
      const double completion =
          std::ranges::min(outcomes, {}, &Outcome::mean_completion).mean_completion;
      for (std::size_t p = 0; p < outcomes.size(); ++p) {
        table[p].Add(outcomes[p].makespan / makespan, outcomes[p].mean_completion / completion);
      }
    }
    Print(together ? "All jobs at once" : "Jobs that come one by one", table);
    EXPECT_LE(Mean(table[0].makespan), 1.05);
    EXPECT_LE(Mean(table[0].completion), 1.05);
  }
}

TEST(ShareByGoodput, OfSmallMixes_EndsWithinFivePercentOfAnExhaustiveSearch) {
  std::vector<Ratios> table = {{"by goodput"}, {"first come, first served"}, {"equal shares"}};
  const std::uint64_t mixes = LongTests() ? 5000 : 200;
  for (std::uint64_t seed = 1; seed <= mixes; ++seed) {
    const Mix mix = MakeMix(seed, {.least_jobs = 2, .most_jobs = 3, .together = true});
    const Least least = SearchAll(mix, kSettings.move_seconds);
    std::size_t p = 0;
    for (const Policy& policy : {ByGoodput(kSettings), Fifo(), EqualShares()}) {
      const Outcome outcome = Simulate(mix, kSettings.move_seconds, policy);
      table[p++].Add(outcome.makespan / least.makespan,
                     outcome.mean_completion / least.mean_completion);
    }
  }
  Print("Two or three jobs at once, beside all ways", table);
  EXPECT_LE(Mean(table[0].makespan), 1.05);
  EXPECT_LE(Mean(table[0].completion), 1.05);
}

// Checks the properties of every answer.
class Rules {
 public:
  void operator()(std::span<const SharingJob> jobs, double now, const Answer& answer) {
    ResourceAmounts used{};
    ResourceAmounts guaranteed{};
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const SharingJob& job = jobs[j];
      const bool has_guarantee = job.guarantee != Share{};
      if (has_guarantee && !job.row) newly_guaranteed_ = true;
      guaranteed = Plus(guaranteed, job.guarantee.amounts());
      if (!answer.rows[j]) {
        EXPECT_FALSE(has_guarantee) << "job " << job.id << " waits, at " << now;
        continue;
      }
      const ResourceAmounts amounts = job.rows[*answer.rows[j]].share.amounts();
      used = Plus(used, amounts);
      EXPECT_TRUE(Fits(job.guarantee.amounts(), amounts)) << "job " << job.id << " at " << now;
    }
    EXPECT_TRUE(Fits(used, kNode.amounts())) << now;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const bool changed = jobs[j].row && answer.rows[j] != jobs[j].row;
      if (!changed) continue;
      ++changes_;
      const bool early = now - jobs[j].since < kSettings.least_seconds;
      EXPECT_TRUE(!early || newly_guaranteed_) << "job " << jobs[j].id << " at " << now;
    }
    newly_guaranteed_ = false;
    FollowMoves(jobs, answer);
  }
  std::size_t changes() const { return changes_; }

 private:
  // Each step fits, and the last one reaches the answer.
  static void FollowMoves(std::span<const SharingJob> jobs, const Answer& answer) {
    std::vector<std::optional<std::size_t>> rows;
    for (const SharingJob& job : jobs) rows.push_back(job.row);
    for (const Move& move : answer.moves) {
      EXPECT_EQ(rows[move.job], move.from);
      rows[move.job] = move.to;
      ResourceAmounts used{};
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        if (rows[j]) used = Plus(used, jobs[j].rows[*rows[j]].share.amounts());
      }
      EXPECT_TRUE(Fits(used, kNode.amounts()));
      EXPECT_TRUE(move.to || jobs[move.job].guarantee == Share{}) << "it waits in between";
    }
    EXPECT_EQ(rows, answer.rows);
  }

  bool newly_guaranteed_ = false;
  std::size_t changes_ = 0;
};

TEST(ShareByGoodput, OfRankedMixes_KeepsRoomGuaranteesAndIntervals) {
  const std::uint64_t mixes = LongTests() ? 20'000 : 1000;
  std::size_t changes = 0;
  for (std::uint64_t seed = 1; seed <= mixes && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Rules rules;
    const Mix mix = MakeMix(seed, {.least_jobs = 3, .most_jobs = 7, .ranked = true});
    const Outcome outcome = Simulate(
        mix, kSettings.move_seconds, ByGoodput(kSettings),
        [&rules](auto jobs, double now, const Answer& answer) { rules(jobs, now, answer); });
    EXPECT_LT(outcome.makespan, 1e9) << "somebody waits for ever";
    changes += rules.changes();
  }
  EXPECT_GT(changes, mixes / 4);
}

}  // namespace
}  // namespace geminid::planner
