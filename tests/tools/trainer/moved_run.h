// A run that moves to other hosts. Each host is a daemon in the test's process, and a name that the
// test's remote shell understands.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_MOVED_RUN_H_
#define GEMINID_TESTS_TOOLS_TRAINER_MOVED_RUN_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
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

class MovedRun : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;
  static constexpr int kWide = 240;
  static constexpr absl::Duration kPatience = absl::Seconds(120);

  // A host's daemon. Runs begin on "home".
  struct HostOfTest {
    geminid::testing::DaemonEnv env;
    std::unique_ptr<v1::JobService::Stub> jobs;
  };

  // A binary that dies at a point replaces geminid-train. With a signal, the process that started
  // the rank gets the signal instead.
  static Words Dying(const std::string& at, const std::string& died, int signal = 0) {
    return {
        "GEMINID_TEST_DIE_AT=" + at,
        "GEMINID_TEST_DIED=" + died,
        absl::StrCat("GEMINID_TEST_SIGNAL=", signal == 0 ? std::string() : std::to_string(signal)),
        "/bin/sh",
        "-c",
        "exec " GEMINID_TRAIN_THAT_DIES " \"$@\""};
  }

  void SetUp() override {
    AddHost("home", "64MiB");
    AddHost("beta", "64MiB");
    AddHost("gamma", "64MiB");
  }

  void AddHost(const std::string& name, const std::string& device_memory,
               const std::string& host_memory = "256MiB") {
    auto host = std::make_unique<HostOfTest>();
    geminid::testing::DaemonEnvOptions options;
    options.host_memory = host_memory;
    options.device_memory = device_memory;
    ASSERT_TRUE(host->env.Start(options).ok());
    host->jobs = v1::JobService::NewStub(geminid::testing::NewChannel(host->env.socket()));
    hosts_[name] = std::move(host);
  }

  std::string SocketOf(const std::string& host) const { return hosts_.at(host)->env.socket(); }

  // A remote shell that reaches the hosts except home, with their daemons. `before`: lines before,
  // for $1.
  std::string Shell(const std::string& before = "") {
    std::string script = absl::StrCat("#!/bin/sh\n", before, "case $1 in\n");
    for (const auto& [name, host] : hosts_) {
      absl::StrAppend(&script, name, ") GEMINID_SOCKET=", host->env.socket(), " ;;\n");
    }
    absl::StrAppend(&script, "*) echo no route to $1 >&2; exit 255 ;;\nesac\n",
                    "export GEMINID_SOCKET\nexec /bin/sh -c \"$2\"\n");
    const std::string path = folder_.Write("shell", script);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  // `more` may replace values of these flags.
  Words Training(const std::string& steps, const Words& more = {}) const {
    const std::vector<std::pair<std::string, std::string>> flags = {
        {"--model", "gpt2-tiny"},     {"--text", text_},     {"--batch", "4"},
        {"--threads", "1"},           {"--ranks", "2"},      {"--schedule", "constant"},
        {"--device-memory", "8MiB"},  {"--job", "moves"},    {"--steps", steps},
        {"--weights-hash", "always"}, {"--report", report_}, {"--progress", "lines"}};
    Words words;
    for (const auto& [flag, value] : flags) {
      if (std::ranges::find(more, flag) == more.end()) words.insert(words.end(), {flag, value});
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // `program` may be another binary, as from DyingAt.
  std::unique_ptr<TrainerProcess> Start(const std::string& shell, const Words& more = {},
                                        Words program = {}) {
    Words words = {"--remote-shell", shell, "--log", log_};
    words.insert(words.end(), more.begin(), more.end());
    program.insert(program.begin(), "GEMINID_SOCKET=" + SocketOf("home"));
    return std::make_unique<TrainerProcess>(Training(kForever, words), kWide, program);
  }

  // Sends the request to the daemon of `at` as soon as the run takes requests there.
  v1::ScaleRequest Ask(const std::string& at, const std::string& host, uint32_t ranks = 0) {
    v1::ScaleJobRequest request;
    request.set_job("moves");
    request.set_host(host);
    request.set_ranks(ranks);
    v1::ScaleRequest answer;
    grpc::Status status;
    const absl::Time give_up = absl::Now() + kPatience;
    do {
      grpc::ClientContext context;
      status = hosts_.at(at)->jobs->ScaleJob(&context, request, &answer);
      if (status.ok()) return answer;
      absl::SleepFor(absl::Milliseconds(5));
    } while (absl::Now() < give_up);
    ADD_FAILURE() << status.error_message();
    return answer;
  }

  v1::ScaleRequest AwaitEnd(const std::string& at, v1::ScaleRequest request) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (request.state() != "done" && request.state() != "refused" && absl::Now() < give_up) {
      v1::GetScaleRequest get;
      get.set_number(request.number());
      grpc::ClientContext context;
      const grpc::Status status = hosts_.at(at)->jobs->GetScale(&context, get, &request);
      EXPECT_TRUE(status.ok()) << status.error_message();
      if (!status.ok()) break;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return request;
  }

  v1::ScaleRequest Move(const std::string& at, const std::string& host, uint32_t ranks = 0) {
    return AwaitEnd(at, Ask(at, host, ranks));
  }

  // Ends the job as geminictl end does: while it has no ranks, and until none is left.
  // `told`: called when the ranks, or their launcher, have been told to end.
  v1::EndJobResponse End(const std::string& at, const std::function<void()>& told) {
    v1::EndJobRequest request;
    request.set_job("moves");
    v1::EndJobResponse ended, rest;
    grpc::Status status;
    const absl::Time give_up = absl::Now() + kPatience;
    do {
      grpc::ClientContext context;
      status = hosts_.at(at)->jobs->EndJob(&context, request, &ended);
    } while (status.error_code() == grpc::StatusCode::FAILED_PRECONDITION && absl::Now() < give_up);
    EXPECT_TRUE(status.ok()) << status.error_message();
    told();
    while (RanksAt(at) > 0 && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(5));
    request.set_now(true);
    grpc::ClientContext context;
    hosts_.at(at)->jobs->EndJob(&context, request, &rest);
    return ended;
  }

  static bool AwaitFile(const std::string& path) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (!std::filesystem::exists(path) && absl::Now() < give_up) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    return std::filesystem::exists(path);
  }

  // The number of the job's ranks in a host's daemon.
  uint32_t RanksAt(const std::string& host) {
    v1::ListJobsResponse jobs;
    grpc::ClientContext context;
    EXPECT_TRUE(hosts_.at(host)->jobs->ListJobs(&context, {}, &jobs).ok());
    uint32_t ranks = 0;
    for (const v1::JobInfo& job : jobs.jobs()) ranks += job.ranks_present();
    return ranks;
  }

  static uint64_t LastStep(const std::string& log) {
    std::ifstream lines(log);
    uint64_t step = 0;
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
      if (!record.is_discarded()) step = record["step"];
    }
    return step;
  }

  bool WaitForStep(const TrainerProcess& trainer, uint64_t step) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (LastStep(log_) < step) {
      if (absl::Now() > give_up || kill(trainer.pid(), 0) != 0) return false;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return true;
  }

  // The run trains on, and ends with the weights of a run that stayed.
  void ExpectBitsOfARunThatStays(TrainerProcess* trainer, const Words& more = {}) {
    ASSERT_TRUE(WaitForStep(*trainer, LastStep(log_) + 4)) << trainer->output();
    trainer->Signal(SIGINT);
    EXPECT_EQ(trainer->Wait(), 128 + SIGINT) << trainer->output();
    const nlohmann::json moved = Report();
    ASSERT_FALSE(moved.is_null()) << trainer->output();
    const std::string steps = moved["steps_done"].dump();
    const CommandResult result =
        RunTrainer(Training(steps, more), {"GEMINID_SOCKET=" + SocketOf("home")});
    ASSERT_EQ(result.code, 0) << result.err;
    const nlohmann::json stayed = Report();
    EXPECT_EQ(moved["weights_sha256"], stayed["weights_sha256"]) << "after " << steps << " steps";
    EXPECT_EQ(moved["loss_hex"].back(), stayed["loss_hex"].back());
  }

  nlohmann::json Report() const {
    std::ifstream file(report_);
    return file ? nlohmann::json::parse(file, nullptr, false) : nlohmann::json();
  }

  static constexpr char kForever[] = "1000000";
  const base::TemporaryFolder folder_;
  const std::string report_ = folder_ / "report.json";
  const std::string log_ = folder_ / "log";
  const std::string text_ = folder_.Write("text", [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text.push_back(static_cast<char>('a' + i * i % 26));
    return text;
  }());
  std::map<std::string, std::unique_ptr<HostOfTest>> hosts_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_MOVED_RUN_H_
