// geminid-train --hosts, as its users run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "tests/base/network_hosts.h"
#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

using base::NetworkHosts;
using testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr int kColumns = 200;
constexpr char kFirstStep[] = "\nstep ";  // each start prints this line before its first step

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class Hosts : public testing::Test {
 protected:
  // A remote shell of these lines. All of its hosts are this one.
  std::string Shell(const std::string& lines) const {
    const std::string path = folder_.Write("shell", "#!/bin/sh\n" + lines + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  std::string HostFile(const std::string& text) const { return folder_.Write("hosts", text); }

  Words Training(const std::string& steps) const {
    return {"--text",         text_,   "--model",    "gpt2-tiny", "--layers", "2",
            "--batch",        "4",     "--steps",    steps,       "--lr",     "3e-3",
            "--threads",      "1",     "--progress", "lines",     "--report", report_,
            "--weights-hash", "always"};
  }
  Words OnHosts(const std::string& hosts, const std::string& shell) const {
    return {"--hosts", HostFile(hosts), "--remote-shell", shell};
  }

  nlohmann::json ReportOf(const Words& arguments) const {
    std::filesystem::remove(report_);
    const CommandResult result = RunTrainer(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return Report();
  }
  nlohmann::json Report() const {
    std::ifstream file(report_);
    return file ? nlohmann::json::parse(file) : nlohmann::json();
  }

  const base::TemporaryFolder folder_;
  const std::string report_ = folder_ / "report.json";
  const std::string text_ = folder_.Write("text", [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text.push_back(static_cast<char>('a' + i * i % 26));
    return text;
  }());
};

// The host has none of our variables, and its login shell prints something.
TEST_F(Hosts, OfOneHost_TrainsWhatItsRanksTrainWithout) {
  const nlohmann::json expected = ReportOf(Training("4") + Words{"--ranks", "2"});
  const std::string shell = Shell("echo welcome to $1; exec env -i /bin/sh -c \"$2\"");
  const nlohmann::json got =
      ReportOf(Training("4") + OnHosts("alpha slots=3", shell) + Words{"--ranks", "2"});
  ASSERT_FALSE(got.is_null() || expected.is_null());
  EXPECT_EQ(got["loss_hex"], expected["loss_hex"]);
  EXPECT_EQ(got["weights_sha256"], expected["weights_sha256"]);
  EXPECT_EQ(got["world_size"], 2);
}

TEST_F(Hosts, OfThisHost_NeedsNoRemoteShell) {
  const CommandResult result =
      RunTrainer(Training("1") + OnHosts("localhost slots=2", "/no/such/shell"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Report()["world_size"], 2);
}

TEST_F(Hosts, OfHostsThatCannotBeReached_NamesEachAndItsWords) {
  const std::string shell = Shell("echo no route to $1 >&2; exit 255");
  const CommandResult result = RunTrainer(Training("1") + OnHosts("alpha\nbeta", shell));
  EXPECT_EQ(result.code, base::kExitUnavailable);
  for (const char* host : {"alpha", "beta"}) {
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat(host, " cannot be reached, or has no ")));
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("ended with code 255: no route to ", host)));
  }
}

TEST_F(Hosts, OfARemoteShellThatIsNotThere_SaysSo) {
  const CommandResult result = RunTrainer(Training("1") + OnHosts("alpha", "/no/such/shell"));
  EXPECT_EQ(result.code, base::kExitUnavailable);
  EXPECT_THAT(result.err, HasSubstr("\"/no/such/shell\" ended with code 127: there is no such"));
}

TEST_F(Hosts, OfAnotherVersion_AreRefused) {
  const std::string greeting = "echo geminid-host 1 0.0.9 abc; exec sleep 60";
  const CommandResult result = RunTrainer(Training("1") + OnHosts("alpha", Shell(greeting)));
  EXPECT_EQ(result.code, base::kExitPrecondition);
  EXPECT_THAT(result.err, HasSubstr("alpha has geminid-train 0.0.9 where this one is "));
}

TEST_F(Hosts, OfAnotherBuildOfThisVersion_AreRefused) {
  const std::string version = RunTrainer({"--version"}).out;
  const std::string number = version.substr(version.find(' ') + 1);
  const std::string greeting =
      absl::StrCat("echo geminid-host 1 ", number.substr(0, number.find('\n')), " abc; sleep 60");
  const CommandResult result = RunTrainer(Training("1") + OnHosts("alpha", Shell(greeting)));
  EXPECT_EQ(result.code, base::kExitPrecondition);
  EXPECT_THAT(result.err, HasSubstr("alpha has another build of geminid-train "));
}

// The host's own value applies there, and contradicts the run's flags.
TEST_F(Hosts, ThatCannotHaveTheRun_SayWhy) {
  const std::string shell = Shell("GEMINID_SOCKET=/its/own exec /bin/sh -c \"$2\"");
  const CommandResult result =
      RunTrainer(Training("1") + OnHosts("alpha", shell) + Words{"--host-memory", "64MiB"},
                 {"GEMINID_SOCKET=/somewhere/else"});
  EXPECT_EQ(result.code, base::kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("alpha: --host-memory is for a daemon that this run starts"));
  EXPECT_THAT(result.err, HasSubstr("/its/own"));
}

TEST_F(Hosts, ForMoreRanksThanSlots_IsRefused) {
  const CommandResult result =
      RunTrainer(Training("1") + OnHosts("localhost slots=2", "ssh") + Words{"--ranks", "4"});
  EXPECT_EQ(result.code, base::kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("--hosts has 2 slots, but the run needs 4 ranks"));
}

TEST_F(Hosts, UnderAnotherLauncher_AreRefused) {
  const Words arguments = Training("1") + OnHosts("localhost slots=2", "ssh");
  for (const Words& launcher : std::vector<Words>{
           {"RANK=0", "WORLD_SIZE=2"}, {"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0"}}) {
    const CommandResult result = RunTrainer(arguments, launcher);
    EXPECT_EQ(result.code, base::kExitUsage);
    EXPECT_THAT(result.err, HasSubstr("--hosts starts the ranks itself"));
  }
}

TEST_F(Hosts, InAScriptOfSlurm_StartsTheRanks) {
  const CommandResult result = RunTrainer(Training("1") + OnHosts("localhost slots=2", "ssh"),
                                          {"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0"});
  EXPECT_EQ(result.code, 0) << result.err;
}

// Two hosts of two ranks each, with a daemon on each host.
class TwoHosts : public Hosts {
 protected:
  void SetUp() override {
    auto hosts = NetworkHosts::Make(2);
    if (!hosts.ok() && NetworkHosts::MayBeSkipped()) GTEST_SKIP() << hosts.status();
    ASSERT_TRUE(hosts.ok()) << hosts.status();
    hosts_ = *std::move(hosts);
  }
  Words OnBoth() const {
    return OnHosts(
        absl::StrCat(NetworkHosts::NameOf(0), " slots=2\n", NetworkHosts::NameOf(1), " slots=2\n"),
        hosts_->remote_shell());
  }
  pid_t RankOn(int host, int rank) const {
    const std::string title = absl::StrCat("geminid-train: rank ", rank, " ");
    for (const pid_t pid : hosts_->ProcessesOf(host)) {
      if (CommandLineOf(pid).starts_with(title)) return pid;
    }
    return -1;
  }
  // The bytes that the host has received over the network so far, including headers.
  uint64_t ReceivedOn(int host) const {
    const std::string command = absl::StrCat(hosts_->remote_shell(), " ",
                                             NetworkHosts::NameOf(host), " 'cat /proc/net/dev'");
    FILE* const pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return 0;
    uint64_t bytes = 0;
    char line[512];
    while (fgets(line, sizeof(line), pipe) != nullptr) {
      const std::vector<std::string> sides = absl::StrSplit(line, ':');
      if (sides.size() != 2 || sides[0].find("lo") != std::string::npos) continue;
      bytes += std::strtoull(sides[1].c_str(), nullptr, 10);
    }
    pclose(pipe);
    return bytes;
  }
  // Waits for a checkpoint of this step or a later one. The run's messages about steps are some
  // seconds apart.
  static bool Saves(const std::string& run, int step) {
    const absl::Time latest = absl::Now() + absl::Seconds(120);
    while (NewestIn(run) < step) {
      if (absl::Now() > latest) return false;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return true;
  }
  static int NewestIn(const std::string& run) {
    const std::string prefix = "step-";
    int newest = 0;
    std::error_code none_yet;
    for (const auto& entry : std::filesystem::directory_iterator(run, none_yet)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(prefix) && entry.path().extension().empty()) {
        newest = std::max(newest, std::atoi(name.c_str() + prefix.size()));
      }
    }
    return newest;
  }
  bool BecomesEmpty(int host) const {
    const absl::Time latest = absl::Now() + absl::Seconds(30);
    while (!hosts_->ProcessesOf(host).empty()) {
      if (absl::Now() > latest) return false;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return true;
  }

  std::unique_ptr<NetworkHosts> hosts_;
};

TEST_F(TwoHosts, TrainTheBitsOfOne) {
  const nlohmann::json expected = ReportOf(Training("4") + Words{"--ranks", "4"});
  const nlohmann::json got = ReportOf(Training("4") + OnBoth());
  ASSERT_FALSE(got.is_null() || expected.is_null());
  EXPECT_EQ(got["loss_hex"], expected["loss_hex"]);
  EXPECT_EQ(got["weights_sha256"], expected["weights_sha256"]);
  EXPECT_EQ(got["world_size"], 4);
  EXPECT_EQ(got["ranks_exchange_by"], "hierarchical");
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
}

TEST_F(TwoHosts, OfAPipeline_TrainTheBitsOfOne) {
  const Words pipeline = {"--parallel",   "pipeline=4", "--layers",    "4",
                          "--accumulate", "2",          "--clip-norm", "0"};
  const nlohmann::json expected = ReportOf(Training("3") + pipeline);
  const nlohmann::json got = ReportOf(Training("3") + pipeline + OnBoth());
  ASSERT_FALSE(got.is_null() || expected.is_null());
  EXPECT_EQ(got["weights_sha256"], expected["weights_sha256"]);
}

// The weights come from the other host once per step, however often they are gathered again.
TEST_F(TwoHosts, ThatShardWeightsWithinThemselves_TrainTheBitsOfOneAndReceiveLess) {
  const Words less = Training("4") + Words{"--accumulate", "2", "--placement", "cpu"};
  const nlohmann::json expected = ReportOf(less + Words{"--ranks", "4"});
  const nlohmann::json got = ReportOf(less + OnBoth() + Words{"--parallel", "zero=3:host"});
  ASSERT_FALSE(got.is_null() || expected.is_null());
  EXPECT_EQ(got["loss_hex"], expected["loss_hex"]);
  EXPECT_EQ(got["weights_sha256"], expected["weights_sha256"]);
  EXPECT_EQ(got["zero_within_host"], true);
  EXPECT_EQ(expected["received_within_host_bytes"], 0);
  EXPECT_GT(got["received_within_host_bytes"], 0);
  // With two ranks each receives half of a chunk from the other; with four, three quarters.
  EXPECT_EQ(
      got["received_bytes"].get<uint64_t>() + got["received_within_host_bytes"].get<uint64_t>() / 2,
      expected["received_bytes"].get<uint64_t>());
  EXPECT_GT(got["host_bytes"], expected["host_bytes"]);
}

// The bytes that all ranks received from the other host by `operation`; empty: by all operations.
uint64_t NetworkBytesOf(const nlohmann::json& report, const std::string& operation) {
  uint64_t bytes = 0;
  for (const nlohmann::json& row : report["traffic"]) {
    if (!operation.empty() && row["operation"] != operation) continue;
    bytes += row["network_bytes_received"].get<uint64_t>();
  }
  return bytes;
}

// The network counters show whether a run counts correctly what it receives. The counters alone
// cannot compare two runs, because each run chooses its algorithms by measured costs.
TEST_F(TwoHosts, ThatShardWeightsWithinThemselves_ReceiveEachWeightLessOverTheNetwork) {
  const auto run = [this](const std::string& axes) {
    const uint64_t before = ReceivedOn(0) + ReceivedOn(1);
    const nlohmann::json report =
        ReportOf(Training("6") + OnBoth() +
                 Words{"--accumulate", "4", "--placement", "cpu", "--parallel", axes});
    const uint64_t crossed = ReceivedOn(0) + ReceivedOn(1) - before;
    // When ranks connect, each host sends 1 MiB three times to measure the cost.
    constexpr uint64_t kTriedBytes = 2 * 3 * 1024 * 1024;
    const uint64_t counted = NetworkBytesOf(report, "") + kTriedBytes;
    EXPECT_GE(crossed, counted);
    // Headers, acknowledgements, and messages to connect and to stay alive.
    EXPECT_LT(static_cast<double>(crossed), 1.1 * static_cast<double>(counted));
    return report;
  };
  const nlohmann::json expected = run("zero=3");
  const nlohmann::json got = run("zero=3:host");
  ASSERT_FALSE(got.is_null() || expected.is_null());
  EXPECT_EQ(got["weights_sha256"], expected["weights_sha256"]);
  // If c bytes are gathered again, each of four ranks receives c / 2 within its host. Otherwise
  // each host would receive c / 2 from the other one.
  const uint64_t spared = got["received_within_host_bytes"].get<uint64_t>() / 2;
  ASSERT_GT(spared, 0);
  // All ranks agree twice on their state. That is 8 bytes each, which each host receives from the
  // other.
  constexpr uint64_t kAgreementBytes = 2 * 2 * 2 * 8;
  EXPECT_EQ(NetworkBytesOf(expected, "AllGather") + kAgreementBytes,
            NetworkBytesOf(got, "AllGather") + spared);
}

TEST_F(TwoHosts, ThatShardWeightsWithinThemselves_NameARankThatDiesWithinTwoSeconds) {
  TrainerProcess trainer(
      Training("1000000") + OnBoth() + Words{"--accumulate", "2", "--parallel", "zero=3:host"},
      kColumns);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  const pid_t pid = RankOn(1, 3);
  ASSERT_GT(pid, 0);
  kill(pid, SIGKILL);
  const absl::Time killed = absl::Now();
  EXPECT_TRUE(trainer.WaitFor(absl::StrCat("rank 3 (pid ", pid, " on 10.78.0.2) was ")));
  EXPECT_LT(absl::Now() - killed, absl::Seconds(2));
  EXPECT_EQ(trainer.Wait(), base::kExitFailed) << trainer.output();
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
}

// Each stage's ranks are on one host, so all gathers are within that host.
TEST_F(TwoHosts, OfAStageEach_HaveNothingToShardWithinThemselves) {
  const Words pipeline = {"--layers", "4", "--accumulate", "2", "--clip-norm", "0", "--parallel"};
  const nlohmann::json expected =
      ReportOf(Training("3") + pipeline + Words{"pipeline=2,data=2", "--ranks", "4"});
  const nlohmann::json got =
      ReportOf(Training("3") + pipeline + Words{"pipeline=2,data=2,zero=3:host"} + OnBoth());
  ASSERT_FALSE(got.is_null() || expected.is_null());
  EXPECT_EQ(got["weights_sha256"], expected["weights_sha256"]);
  EXPECT_EQ(got["received_bytes"], expected["received_bytes"]);
  EXPECT_EQ(got["received_within_host_bytes"], 0);
}

#ifdef GEMINID_WITH_DOUBLE
// Each host has a GPU, on a driver without one. The host's two ranks exchange through host memory.
TEST_F(TwoHosts, OfGpusThatShardWeightsWithinThemselves_TrainTheBitsOfTheThirdStage) {
  const std::string shell =
      Shell(absl::StrCat("export LINE=\"$2\"; exec ", hosts_->remote_shell(), " $1 'exec ",
                         GEMINID_WITH_DOUBLE, " --memory 512 /bin/sh -c \"$LINE\"'"));
  const std::string both =
      absl::StrCat(NetworkHosts::NameOf(0), " slots=2\n", NetworkHosts::NameOf(1), " slots=2\n");
  const auto run = [&](const Words& more) {
    return ReportOf(Training("3") + OnHosts(both, shell) + more +
                    Words{"--context", "32", "--device", "cuda", "--accumulate", "2"});
  };
  const nlohmann::json third = run({"--placement", "cpu", "--parallel", "zero=3"});
  ASSERT_FALSE(third.is_null());
  EXPECT_THAT(third["ranks_exchange_by"].get<std::string>(),
              HasSubstr("hierarchical and host memory: "));
  for (const char* const placement : {"cpu", "auto"}) {
    const nlohmann::json got = run({"--placement", placement, "--parallel", "zero=3:host"});
    ASSERT_FALSE(got.is_null());
    EXPECT_EQ(got["loss_hex"], third["loss_hex"]) << placement;
    EXPECT_EQ(got["weights_sha256"], third["weights_sha256"]) << placement;
    EXPECT_GT(got["received_within_host_bytes"], 0) << placement;
  }
}
#endif

// The remaining host has no other host from which it could gather less.
TEST_F(TwoHosts, ThatShardWeightsWithinThemselvesOfWhichOneIsLost_GoOnWithTheOther) {
  const std::string run = folder_ / "run";
  TrainerProcess trainer(Training("1000000") + OnBoth() +
                             Words{"--parallel", "zero=3:host", "--restarts", "1", "--resume",
                                   "--save", run, "--save-every", "10"},
                         kColumns);
  ASSERT_TRUE(Saves(run, 10));
  for (const pid_t pid : hosts_->ProcessesOf(1)) kill(pid, SIGKILL);
  ASSERT_TRUE(trainer.WaitFor("starts again (1 of 1)", kFirstStep)) << trainer.output();
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), base::kExitSignalBase + SIGINT) << trainer.output();
  const nlohmann::json got = Report();
  ASSERT_FALSE(got.is_null());
  EXPECT_EQ(got["world_size"], 2);
  EXPECT_GE(got["first_step"], 10);
}

TEST_F(Hosts, OfOneHost_HaveNoWeightsToShardWithinIt) {
  const CommandResult result = RunTrainer(Training("1") + OnHosts("localhost slots=2", "ssh") +
                                          Words{"--parallel", "zero=3:host"});
  EXPECT_EQ(result.code, base::kExitUsage) << result.err;
  EXPECT_THAT(result.err, HasSubstr("zero=3:host saves traffic between hosts"));
}

TEST_F(TwoHosts, OfWhichOneIsFrozen_EndWithinTwoSecondsNamingIt) {
  TrainerProcess trainer(Training("1000000") + OnBoth(), kColumns);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  for (const pid_t pid : hosts_->ProcessesOf(1)) kill(pid, SIGSTOP);
  const absl::Time frozen = absl::Now();
  EXPECT_TRUE(trainer.WaitFor("was lost with its host: nothing was heard from 10.78.0.2 for 1.2s"));
  EXPECT_LT(absl::Now() - frozen, absl::Seconds(2));
  EXPECT_EQ(trainer.Wait(), base::kExitUnavailable) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr("rank 2 (pid "));
  EXPECT_TRUE(BecomesEmpty(0));
}

TEST_F(TwoHosts, OfWhichOneLosesARank_EndAndNameIt) {
  TrainerProcess trainer(Training("1000000") + OnBoth(), kColumns);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  const pid_t pid = RankOn(1, 3);
  ASSERT_GT(pid, 0);
  kill(pid, SIGKILL);
  EXPECT_EQ(trainer.Wait(), base::kExitFailed) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr(absl::StrCat("rank 3 (pid ", pid,
                                                       " on 10.78.0.2) was "
                                                       "killed by signal 9 (Killed)")));
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
}

TEST_F(TwoHosts, WithRestarts_GoOnAfterARankDied) {
  TrainerProcess trainer(Training("1000000") + OnBoth() + Words{"--restarts", "1"}, kColumns);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  const pid_t pid = RankOn(1, 3);
  ASSERT_GT(pid, 0);
  kill(pid, SIGKILL);
  ASSERT_TRUE(trainer.WaitFor("all ranks are started again (1 of 1)", kFirstStep))
      << trainer.output();
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), base::kExitSignalBase + SIGINT) << trainer.output();
  const nlohmann::json got = Report();
  ASSERT_FALSE(got.is_null());
  const nlohmann::json expected =
      ReportOf(Training(got["steps_done"].dump()) + Words{"--ranks", "4"});
  ASSERT_FALSE(expected.is_null());
  EXPECT_EQ(got["weights_sha256"], expected["weights_sha256"]);
}

// Either the host of rank 0 is lost, or the other one. The result is that of fewer ranks from the
// same checkpoint.
TEST_F(TwoHosts, WithRestarts_OfWhichOneIsLost_GoOnWithTheOtherFromTheCheckpoint) {
  for (const int lost : {1, 0}) {
    SCOPED_TRACE(lost);
    std::filesystem::remove(report_);
    const std::string run = folder_ / absl::StrCat("run", lost);
    const auto saved = [](const std::string& steps) {
      return Words{"--resume", "--save-every", "10", "--keep", "1000", "--steps", steps};
    };
    TrainerProcess trainer(
        Training("1") + saved("1000000") + OnBoth() + Words{"--save", run, "--restarts", "1"},
        kColumns);
    ASSERT_TRUE(Saves(run, 20));
    for (const pid_t pid : hosts_->ProcessesOf(lost)) kill(pid, SIGKILL);
    ASSERT_TRUE(trainer.WaitFor(absl::StrCat("starts again (1 of 1) without ",
                                             NetworkHosts::NameOf(lost), ", with 2 ranks"),
                                kFirstStep))
        << trainer.output();
    trainer.Signal(SIGINT);
    EXPECT_EQ(trainer.Wait(), base::kExitSignalBase + SIGINT) << trainer.output();
    EXPECT_TRUE(BecomesEmpty(1 - lost));
    const nlohmann::json got = Report();
    ASSERT_FALSE(got.is_null());
    EXPECT_EQ(got["world_size"], 2);
    const int first_step = got["first_step"];
    EXPECT_GE(first_step, 20);
    const std::string name = absl::StrFormat("/step-%09d", first_step);
    const std::string copy = folder_ / absl::StrCat("copy", lost);
    std::filesystem::create_directory(copy);
    std::filesystem::copy(run + name, copy + name);
    const nlohmann::json expected = ReportOf(Training("1") + saved(got["steps_done"].dump()) +
                                             Words{"--save", copy, "--ranks", "2"});
    EXPECT_EQ(expected["first_step"], first_step);
    EXPECT_EQ(got["weights_sha256"], expected["weights_sha256"]);
  }
}

TEST_F(TwoHosts, WithRestartsAndNothingToResume_EndWithAHost) {
  TrainerProcess trainer(Training("1000000") + OnBoth() + Words{"--restarts", "3"}, kColumns);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  for (const pid_t pid : hosts_->ProcessesOf(1)) kill(pid, SIGKILL);
  EXPECT_EQ(trainer.Wait(), base::kExitUnavailable) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr("was lost with its host"));
}

TEST_F(TwoHosts, OfAMeshThatFitsNoFewerRanks_EndWithAHost) {
  TrainerProcess trainer(
      Training("1000000") + OnBoth() +
          Words{"--parallel", "data=4", "--restarts", "3", "--resume", "--save", folder_ / "run"},
      kColumns);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  for (const pid_t pid : hosts_->ProcessesOf(1)) kill(pid, SIGKILL);
  EXPECT_EQ(trainer.Wait(), base::kExitUnavailable) << trainer.output();
}

TEST_F(TwoHosts, AtASignal_EndAfterTheStep) {
  TrainerProcess trainer(Training("1000000") + OnBoth(), kColumns);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  trainer.Signal(SIGINT);
  EXPECT_EQ(trainer.Wait(), base::kExitSignalBase + SIGINT) << trainer.output();
  EXPECT_THAT(trainer.output(), HasSubstr("SIGINT: ends at the next micro-batch"));
}

TEST_F(TwoHosts, ThatNoLongerHearFromTheirStart_EndTheRanks) {
  TrainerProcess trainer(Training("1000000") + OnBoth(), kColumns);
  ASSERT_TRUE(trainer.WaitForStep(1)) << trainer.output();
  trainer.Signal(SIGSTOP);
  EXPECT_TRUE(BecomesEmpty(0));
  EXPECT_TRUE(BecomesEmpty(1));
}

}  // namespace
}  // namespace geminid::trainer
