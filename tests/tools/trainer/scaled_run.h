// A run that changes its number of ranks, on a daemon in the test's process; and the run for
// comparison.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_SCALED_RUN_H_
#define GEMINID_TESTS_TOOLS_TRAINER_SCALED_RUN_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "geminid/v1/job.grpc.pb.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {

using Words = std::vector<std::string>;

inline constexpr int kWide = 240;
inline const std::string kFolder = "FOLDER";  // stands for the test's folder
inline constexpr char kForever[] = "1000000";
inline constexpr uint64_t kMore = 4;            // steps after the change that are compared
inline constexpr uint64_t kRecordBytes = 4096;  // of HandoverMemory without state
inline constexpr absl::Duration kPatience = absl::Seconds(120);

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class ScalingBase {
 protected:
  ScalingBase() {
    StartDaemon();
    jobs_ = v1::JobService::NewStub(geminid::testing::NewChannel(env_.socket()));
  }

  void StartDaemon() {
    geminid::testing::DaemonEnvOptions options;
    options.host_memory = "256MiB";
    options.device_memory = "64MiB";
    EXPECT_TRUE(env_.Start(options).ok());
  }

  // `more` may name another model, and use kFolder.
  Words Arguments(const Words& more) const {
    Words words = {"--text",     text_,      "--batch",         "4",    "--threads", "1",
                   "--schedule", "constant", "--device-memory", "8MiB", "--socket",  env_.socket(),
                   "--job",      "scaled"};
    if (std::ranges::find(more, "--model") == more.end())
      words = words + Words{"--model", "gpt2-tiny"};
    words = words + more;
    std::ranges::replace(words, kFolder, folder_.path());
    return words;
  }

  // The run must have steps left, because a request reaches ranks between two steps.
  v1::ScaleRequest Ask(uint32_t ranks) {
    v1::ScaleJobRequest request;
    request.set_job("scaled");
    request.set_ranks(ranks);
    v1::ScaleRequest scale;
    const absl::Time give_up = absl::Now() + kPatience;
    grpc::Status status;
    do {
      grpc::ClientContext context;
      status = jobs_->ScaleJob(&context, request, &scale);
      if (status.ok()) return scale;
      absl::SleepFor(absl::Milliseconds(5));
    } while (absl::Now() < give_up);
    ADD_FAILURE() << status.error_message();
    return scale;
  }

  v1::ScaleRequest AwaitEnd(v1::ScaleRequest scale) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (scale.state() != "done" && scale.state() != "refused" && absl::Now() < give_up) {
      v1::GetScaleRequest request;
      request.set_number(scale.number());
      grpc::ClientContext context;
      const grpc::Status status = jobs_->GetScale(&context, request, &scale);
      EXPECT_TRUE(status.ok()) << status.error_message();
      if (!status.ok()) break;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return scale;
  }

  // Losses by step, as written: with enough digits to read the same bits. A step's last line
  // counts.
  static std::map<uint64_t, std::string> Losses(const std::string& log) {
    std::map<uint64_t, std::string> losses;
    std::ifstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
      if (!record.is_discarded()) losses[record["step"]] = record["loss"].dump();
    }
    return losses;
  }

  static bool WaitUntil(const std::function<bool()>& is_so) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (!is_so()) {
      if (absl::Now() >= give_up) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }

  bool WaitForLogged(TrainerProcess* trainer, const std::string& log, uint64_t step) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (absl::Now() < give_up) {
      const auto losses = Losses(log);
      if (!losses.empty() && losses.rbegin()->first >= step) return true;
      if (kill(trainer->pid(), 0) != 0) return false;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return false;
  }

  struct Change {
    uint64_t step = 0;
    int ranks = 0;
  };
  // The last change that the launcher reported, if any.
  static std::optional<Change> LastChange(const std::string& said) {
    const std::string before = "handed over the state after step ";
    const size_t at = said.rfind(before);
    if (at == std::string::npos) return std::nullopt;
    Change change;
    change.step = std::strtoull(said.c_str() + at + before.size(), nullptr, 10);
    change.ranks = std::atoi(said.c_str() + said.find("; ", at) + 2);
    return change;
  }

  // The losses of a run that `before` ranks make up to a step, and `after` ranks resume from a
  // checkpoint.
  std::map<uint64_t, std::string> Reference(int before, const Change& change, const Words& flags) {
    const std::string save = folder_ / absl::StrCat("save-", ++references_);
    const std::string log = folder_ / absl::StrCat("reference-", references_);
    const auto run = [&](int ranks, uint64_t steps, const Words& more) {
      const CommandResult result =
          RunTrainer(Arguments(flags +
                               Words{"--ranks", absl::StrCat(ranks), "--steps", absl::StrCat(steps),
                                     "--save", save, "--log", log, "--progress", "none"} +
                               more));
      EXPECT_EQ(result.code, 0) << result.err;
    };
    run(before, change.step, {});
    run(change.ranks, change.step + kMore, {"--resume"});
    return Losses(log);
  }

  // A first rank that dies after a step may not have logged the step; at most `missing` steps are
  // missing.
  void ExpectSameLosses(const std::string& log, const std::map<uint64_t, std::string>& expected,
                        uint64_t missing = 0) {
    const std::map<uint64_t, std::string> losses = Losses(log);
    ASSERT_FALSE(expected.empty());
    uint64_t missed = 0;
    for (const auto& [step, loss] : expected) {
      if (!losses.contains(step) && ++missed <= missing) continue;
      ASSERT_TRUE(losses.contains(step)) << step;
      EXPECT_EQ(losses.at(step), loss) << "step " << step;
    }
  }

  size_t RanksOf(const TrainerProcess& trainer) const {
    return trainer.Children("geminid-train: rank ").size();
  }

  // The bytes of the launcher's memory for state.
  static uint64_t HandoverBytes(const TrainerProcess& trainer) {
    const std::string folder = absl::StrCat("/proc/", trainer.pid(), "/fd");
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
      struct stat about = {};
      if (target.find("geminid-handover") != std::string::npos &&
          stat(entry.path().c_str(), &about) == 0) {
        return static_cast<uint64_t>(about.st_size);
      }
    }
    return 0;
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text.push_back(static_cast<char>('a' + i * i % 26));
    return text;
  }());
  const std::string log_ = folder_ / "log";
  geminid::testing::DaemonEnv env_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  int references_ = 0;
};

struct Death {
  int rank = 0;
  const char* point = "";
  bool before_the_change = false;
};

// A binary that dies at a point replaces geminid-train.
inline Words DyingAt(const Death& death, const std::string& died, const Words& more = {}) {
  return Words{absl::StrCat("GEMINID_TEST_DIE_AT=", death.rank, " ", death.point),
               "GEMINID_TEST_DIED=" + died} +
         more + Words{"/bin/sh", "-c", "exec " GEMINID_TRAIN_THAT_DIES " \"$@\""};
}

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_SCALED_RUN_H_
