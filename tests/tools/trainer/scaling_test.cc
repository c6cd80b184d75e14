// Runs that go on as another number of ranks: by request, and after a death. Whatever happens in
// between, the losses are those of a run that was resumed with so many ranks from a checkpoint.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/checkpoint/folder.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/session.h"
#include "geminid/v1/job.grpc.pb.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr int kWide = 240;
constexpr char kForever[] = "1000000";
constexpr uint64_t kMore = 4;            // steps after the change that are compared
constexpr uint64_t kRecordBytes = 4096;  // of HandoverMemory without state
constexpr absl::Duration kPatience = absl::Seconds(120);

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class ScalingBase {
 protected:
  ScalingBase() {
    geminid::testing::DaemonEnvOptions options;
    options.host_memory = "256MiB";
    options.device_memory = "64MiB";
    EXPECT_TRUE(env_.Start(options).ok());
    jobs_ = v1::JobService::NewStub(geminid::testing::NewChannel(env_.socket()));
  }

  Words Arguments(const Words& more) const {
    return Words{"--text",          text_,         "--model",    "gpt2-tiny",
                 "--batch",         "4",           "--threads",  "1",
                 "--device-memory", "8MiB",        "--schedule", "constant",
                 "--socket",        env_.socket(), "--job",      "scaled"} +
           more;
  }

  // As a request reaches ranks between two steps, the run must have some.
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

  // By step, as written: enough digits to read the same bits back. The last line of a step counts.
  static std::map<uint64_t, std::string> Losses(const std::string& log) {
    std::map<uint64_t, std::string> losses;
    std::ifstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
      if (!record.is_discarded()) losses[record["step"]] = record["loss"].dump();
    }
    return losses;
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
  // The change that the launcher told last, if any.
  static std::optional<Change> LastChange(const std::string& said) {
    const std::string before = "handed over the state after step ";
    const size_t at = said.rfind(before);
    if (at == std::string::npos) return std::nullopt;
    Change change;
    change.step = std::strtoull(said.c_str() + at + before.size(), nullptr, 10);
    change.ranks = std::atoi(said.c_str() + said.find("; ", at) + 2);
    return change;
  }

  // The losses of a run with `before` ranks up to a step, whose checkpoint `after` ranks resume.
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

  void ExpectSameLosses(const std::string& log, const std::map<uint64_t, std::string>& expected) {
    const std::map<uint64_t, std::string> losses = Losses(log);
    ASSERT_FALSE(expected.empty());
    for (const auto& [step, loss] : expected) {
      ASSERT_TRUE(losses.contains(step)) << step;
      EXPECT_EQ(losses.at(step), loss) << "step " << step;
    }
  }

  size_t RanksOf(const TrainerProcess& trainer) const {
    return trainer.Children("geminid-train: rank ").size();
  }

  // Of the launcher's memory for state.
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

struct Case {
  int before = 1;
  int after = 2;
  Words flags;
};

class Scaling : public ScalingBase, public ::testing::TestWithParam<Case> {};

TEST_P(Scaling, ByRequest_GoesOnWithTheLossesOfAResumeWithSoManyRanks) {
  const Case& is = GetParam();
  TrainerProcess trainer(
      Arguments(is.flags + Words{"--ranks", absl::StrCat(is.before), "--max-ranks", "4", "--steps",
                                 kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  const v1::ScaleRequest done = AwaitEnd(Ask(static_cast<uint32_t>(is.after)));
  EXPECT_EQ(done.state(), "done") << done.message() << trainer.output();
  ASSERT_TRUE(trainer.WaitFor("handed over the state after step ", "start 2: goes on after step "))
      << trainer.output();
  const std::optional<Change> change = LastChange(trainer.output());
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->ranks, is.after);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, change->step + kMore)) << trainer.output();
  EXPECT_EQ(RanksOf(trainer), static_cast<size_t>(is.after));
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  ExpectSameLosses(log_, Reference(is.before, *change, is.flags));
}

INSTANTIATE_TEST_SUITE_P(
    Groups, Scaling,
    ::testing::Values(Case{1, 2, {"--optimizer", "adamw"}},
                      Case{2, 1, {"--optimizer", "came", "--state-dtype", "bf16"}},
                      Case{2, 4, {"--optimizer", "adafactor"}},
                      Case{2, 4, {"--optimizer", "adamw", "--state-dtype", "bf16"}},
                      Case{2, 1, {"--optimizer", "adamw"}}),
    [](const auto& of) { return absl::StrCat("Case", of.index); });

// --- deaths --------------------------------------------------------------------------------------

struct Death {
  int rank = 0;
  const char* point = "";
  bool before_the_change = false;
};

// A binary that dies at a point takes the place of geminid-train.
Words DyingAt(const Death& death, const std::string& died, const Words& more = {}) {
  return Words{absl::StrCat("GEMINID_TEST_DIE_AT=", death.rank, " ", death.point),
               "GEMINID_TEST_DIED=" + died} +
         more + Words{"/bin/sh", "-c", "exec " GEMINID_TRAIN_THAT_DIES " \"$@\""};
}

class ScalingDeaths : public ScalingBase, public ::testing::TestWithParam<Death> {};

TEST_P(ScalingDeaths, AtAnyInstant_LeaveARunOfTheOldOrTheNewNumberOfRanks) {
  const Death& death = GetParam();
  const std::string died = folder_ / "died";
  TrainerProcess trainer(Arguments({"--ranks", "2", "--restarts", "2", "--steps", kForever, "--log",
                                    log_, "--progress", "lines", "--optimizer", "came"}),
                         kWide, DyingAt(death, died));
  const v1::ScaleRequest end = AwaitEnd(Ask(4));
  EXPECT_EQ(end.state(), death.before_the_change ? "refused" : "done") << end.message();
  // Of whichever start: one whose first rank dies does not say it.
  ASSERT_TRUE(trainer.WaitFor(": goes on after step ", "step ")) << trainer.output();
  const std::optional<Change> change = LastChange(trainer.output());
  EXPECT_EQ(change.has_value(), !death.before_the_change) << trainer.output();
  const uint64_t from = change.has_value() ? change->step : Losses(log_).rbegin()->first;
  ASSERT_TRUE(WaitForLogged(&trainer, log_, from + kMore)) << trainer.output();
  EXPECT_TRUE(std::ifstream(died).good()) << "nobody died";
  EXPECT_EQ(RanksOf(trainer), death.before_the_change ? 2u : 4u) << trainer.output();
  EXPECT_EQ(HandoverBytes(trainer), kRecordBytes) << "state is left that nobody needs";
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  const Change reference = change.value_or(Change{from, 2});
  ExpectSameLosses(log_, Reference(2, reference, {"--optimizer", "came"}));
}

INSTANTIATE_TEST_SUITE_P(
    Points, ScalingDeaths,
    ::testing::Values(Death{0, "handover begun", true}, Death{1, "handover begun", true},
                      Death{0, "shards handed over", true}, Death{1, "shards handed over", true},
                      Death{0, "all shards handed over", true},
                      Death{0, "handover complete", false}, Death{1, "handover complete", false},
                      Death{0, "state taken over", false}, Death{3, "state taken over", false},
                      Death{2, "step recorded", false}, Death{0, "state released", false}),
    [](const auto& of) {
      std::string name = absl::StrCat("Rank", of.param.rank, "_", of.param.point);
      std::ranges::replace(name, ' ', '_');
      return name;
    });

class ScalingSignals : public ScalingBase, public ::testing::TestWithParam<const char*> {};

// At the first point the old ranks have asked each other for the last time whether to end. At the
// second the new ranks are there, and have trained nothing.
TEST_P(ScalingSignals, DuringAChange_EndTheRunWithItsStateSaved) {
  const std::string died = folder_ / "signalled", save = folder_ / "save";
  const Words run = Arguments({"--ranks", "2", "--log", log_, "--save", save});
  TrainerProcess trainer(run + Words{"--steps", kForever, "--progress", "lines"}, kWide,
                         DyingAt({0, GetParam()}, died, {"GEMINID_TEST_SIGNAL=15"}));
  Ask(4);
  EXPECT_EQ(trainer.Wait(), 128 + SIGTERM) << trainer.output();
  EXPECT_TRUE(std::ifstream(died).good()) << "nobody was signalled";
  const std::optional<Change> change = LastChange(trainer.output());
  ASSERT_TRUE(change.has_value()) << trainer.output();
  // At most a step that had begun is completed.
  const uint64_t last = Losses(log_).rbegin()->first;
  EXPECT_LE(last, change->step + 1);
  EXPECT_THAT(trainer.output(),
              HasSubstr(absl::StrCat("stopped at step ", last, " of ", kForever, " by SIGTERM")));
  EXPECT_TRUE(std::filesystem::is_directory(save + "/" + checkpoint::NameOfStep(last)));
}

INSTANTIATE_TEST_SUITE_P(Points, ScalingSignals,
                         ::testing::Values("all shards handed over", "state taken over"),
                         [](const auto& of) {
                           std::string name = of.param;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

class ScalingAfterDeaths : public ScalingBase, public ::testing::Test {};

TEST_F(ScalingAfterDeaths, WithoutARestartLeft_GoOnWithFewerRanksFromMemory) {
  TrainerProcess trainer(Arguments({"--ranks", "2", "--min-ranks", "1", "--steps", kForever,
                                    "--log", log_, "--progress", "lines"}),
                         kWide);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, 3)) << trainer.output();
  const std::vector<pid_t> ranks = trainer.Children("geminid-train: rank 1");
  ASSERT_EQ(ranks.size(), 1u);
  const absl::Time killed = absl::Now();
  kill(ranks[0], SIGKILL);
  ASSERT_TRUE(trainer.WaitFor("handed over the state after step ", "start 3: goes on after step "))
      << trainer.output();
  const absl::Duration took = absl::Now() - killed;
  RecordProperty("milliseconds", static_cast<int>(absl::ToInt64Milliseconds(took)));
  const std::optional<Change> change = LastChange(trainer.output());
  ASSERT_TRUE(change.has_value());
  EXPECT_EQ(change->ranks, 1);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, change->step + kMore)) << trainer.output();
  EXPECT_EQ(RanksOf(trainer), 1u);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
  ExpectSameLosses(log_, Reference(2, *change, {}));
}

// --- refusals ------------------------------------------------------------------------------------

class ScalingRefusals : public ScalingBase, public ::testing::Test {
 protected:
  uint64_t FreeHostBytes() {
    return env_.daemon().hub().Inspect([](const core::Engine& engine, const auto&) {
      return engine.ledger().Totals(core::kHostAccount).free_bytes;
    });
  }

  // It goes on as it was.
  void ExpectGoesOn(TrainerProcess* trainer, size_t ranks) {
    ASSERT_TRUE(WaitForLogged(trainer, log_, Losses(log_).rbegin()->first + 2))
        << trainer->output();
    EXPECT_EQ(RanksOf(*trainer), ranks);
  }
};

TEST_F(ScalingRefusals, OfNumbersThatTheRunCannotHave_LeaveItAsItWas) {
  TrainerProcess trainer(
      Arguments({"--ranks", "2", "--steps", kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  const v1::ScaleRequest uneven = AwaitEnd(Ask(3));
  EXPECT_EQ(uneven.state(), "refused");
  EXPECT_THAT(uneven.message(), HasSubstr("--batch"));
  const v1::ScaleRequest many = AwaitEnd(Ask(32));
  EXPECT_EQ(many.state(), "refused");
  EXPECT_THAT(many.message(), HasSubstr("--batch"));
  ExpectGoesOn(&trainer, 2);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

TEST_F(ScalingRefusals, WithoutRoomOnTheDevice_SayHowMuchIsMissing) {
  TrainerProcess trainer(Arguments({"--ranks", "2", "--batch", "16", "--steps", kForever, "--log",
                                    log_, "--progress", "lines"}),
                         kWide);
  const v1::ScaleRequest many = AwaitEnd(Ask(16));
  EXPECT_EQ(many.state(), "refused");
  EXPECT_THAT(many.message(), HasSubstr("112 MiB of device memory"));
  ExpectGoesOn(&trainer, 2);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

TEST_F(ScalingRefusals, OfARunWithoutALauncher_SayHowToStartIt) {
  TrainerProcess trainer(
      Arguments({"--ranks", "1", "--steps", kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, 3)) << trainer.output();
  v1::ScaleJobRequest request;
  request.set_job("scaled");
  request.set_ranks(2);
  v1::ScaleRequest scale;
  grpc::ClientContext context;
  const grpc::Status status = jobs_->ScaleJob(&context, request, &scale);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("--max-ranks"));
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

TEST_F(ScalingRefusals, WithoutHostMemoryForTheState_SayTheNumbers) {
  TrainerProcess trainer(
      Arguments({"--ranks", "2", "--steps", kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  ASSERT_TRUE(WaitForLogged(&trainer, log_, 3)) << trainer.output();
  // Another job takes what is left, but for less than the state.
  constexpr uint64_t kLeft = uint64_t{1} << 16;
  ConnectOptions options;
  options.socket = env_.socket();
  options.job = "other";
  const absl::StatusOr<std::unique_ptr<Session>> other = Session::Connect(options);
  ASSERT_TRUE(other.ok()) << other.status();
  const uint64_t free = FreeHostBytes();
  ASSERT_GT(free, kLeft);
  const auto taken = (*other)->Allocate({{"ballast", ChunkKind::kShared, free - kLeft}});
  ASSERT_TRUE(taken.ok()) << taken.status();
  const v1::ScaleRequest refused = AwaitEnd(Ask(4));
  EXPECT_EQ(refused.state(), "refused");
  EXPECT_THAT(refused.message(), HasSubstr("hold the state a second time"));
  ExpectGoesOn(&trainer, 2);
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

TEST_F(ScalingRefusals, OfASecondRequestBeforeTheFirstIsDone_NameTheFirst) {
  TrainerProcess trainer(
      Arguments({"--ranks", "2", "--steps", kForever, "--log", log_, "--progress", "lines"}),
      kWide);
  const v1::ScaleRequest first = Ask(4);
  v1::ScaleJobRequest request;
  request.set_job("scaled");
  request.set_ranks(1);
  v1::ScaleRequest scale;
  grpc::ClientContext context;
  const grpc::Status second = jobs_->ScaleJob(&context, request, &scale);
  EXPECT_EQ(second.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(second.error_message(), HasSubstr("was asked for 4 ranks before"));
  EXPECT_EQ(AwaitEnd(first).state(), "done");
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), 128 + SIGINT) << trainer.output();
}

}  // namespace
}  // namespace geminid::trainer
