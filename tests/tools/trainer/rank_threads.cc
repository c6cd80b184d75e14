#include "tests/tools/trainer/rank_threads.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/collectives/world.h"
#include "tests/daemon_env/daemon_env.h"
#include "tools/trainer/evaluate.h"
#include "tools/trainer/flags/command_line.h"
#include "tools/trainer/flags/data_flags.h"
#include "tools/trainer/train.h"

namespace geminid::trainer {
namespace {

// The failure that explains the others, if there is one.
absl::Status FirstReason(const std::vector<absl::Status>& ends) {
  absl::Status found;
  for (const absl::Status& end : ends) {
    if (end.ok()) continue;
    if (!absl::IsAborted(end)) return end;
    found = end;
  }
  return found;
}

}  // namespace

struct RankThreads::Daemon {
  geminid::testing::DaemonEnv env;
};

RankThreads::RankThreads() : daemon_(std::make_unique<Daemon>()) {
  unsetenv("GEMINID_DEVICE");
  const absl::Status started = daemon_->env.Start();
  EXPECT_TRUE(started.ok()) << started;
}

RankThreads::~RankThreads() = default;

absl::Status RankThreads::Train(const std::vector<std::string>& arguments) {
  GEMINID_ASSIGN_OR_RETURN(const CommandLine line, ParseCommandLine(arguments));
  if (!line.options) return absl::InvalidArgumentError("these flags do not train");
  const TrainOptions& options = *line.options;
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<TokenSource> data, OpenData(options));
  const int ranks = RanksOf(options, 1);
  const std::string job = collectives::UniqueName();
  std::string said;  // the output of rank 0
  std::vector<absl::Status> ends(static_cast<size_t>(ranks));
  const auto train = [&](int rank) {
    RankContext context{.info = {.rank = rank,
                                 .world_size = ranks,
                                 .local_rank = rank,
                                 .local_world_size = ranks,
                                 .job = job},
                        .socket = daemon_->env.socket(),
                        .data = data.get(),
                        .write_stderr = [](const std::string&) {},
                        .terminal_width = nullptr};
    if (rank == 0) context.write_stderr = [&said](const std::string& words) { said += words; };
    ends[static_cast<size_t>(rank)] =
        (options.eval_only ? EvaluateAsRank(options, context) : TrainAsRank(options, context))
            .status();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(train, rank);
  for (std::thread& thread : threads) thread.join();
  const absl::Status failure = FirstReason(ends);
  if (failure.ok()) return failure;
  return {failure.code(), absl::StrCat(std::string(failure.message()), "\n", said)};
}

}  // namespace geminid::trainer
