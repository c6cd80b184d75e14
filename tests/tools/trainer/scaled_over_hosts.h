// A run that changes the number of its ranks over two hosts, each of which has a daemon in the
// test's process and a network of its own.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_SCALED_OVER_HOSTS_H_
#define GEMINID_TESTS_TOOLS_TRAINER_SCALED_OVER_HOSTS_H_

#include <signal.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/base/network_hosts.h"
#include "tests/tools/trainer/moved_run.h"

namespace geminid::trainer {

class ScaledOverHosts : public MovedRun {
 protected:
  // So many ranks up to a step.
  struct Leg {
    int ranks = 0;
    uint64_t until = 0;
  };
  static constexpr uint64_t kMore = 4;  // steps after the last change that are compared

  void SetUp() override { SetUpWith("64MiB"); }

  // `second`: the device memory of the second host.
  void SetUpWith(const std::string& second) {
    auto network = base::NetworkHosts::Make(2);
    if (!network.ok() && base::NetworkHosts::MayBeSkipped()) GTEST_SKIP() << network.status();
    ASSERT_TRUE(network.ok()) << network.status();
    network_ = *std::move(network);
    AddHost("home", "64MiB");  // of the runs that this one is compared with
    AddHost(first_, "64MiB");
    AddHost(second_, second);
  }

  // `before`: lines before a host is reached, for $1.
  std::string ShellToHosts(const std::string& before = "") const {
    std::string script = absl::StrCat("#!/bin/sh\n", before, "case $1 in\n");
    for (const std::string& name : {first_, second_}) {
      absl::StrAppend(&script, name, ") socket=", SocketOf(name), " ;;\n");
    }
    absl::StrAppend(&script, "*) echo no route to $1 >&2; exit 255 ;;\nesac\nexec ",
                    network_->remote_shell(), " $1 \"export GEMINID_SOCKET=$socket; $2\"\n");
    const std::string path = folder_.Write("shell", script);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  std::unique_ptr<TrainerProcess> StartOnHosts(int ranks, const Words& more = {},
                                               const Words& program = {},
                                               const std::string& before = "") {
    Words words = {
        "--hosts",
        folder_.Write("hosts", absl::StrCat(first_, " slots=2\n", second_, " slots=2\n")),
        "--ranks", absl::StrCat(ranks)};
    words.insert(words.end(), more.begin(), more.end());
    return Start(ShellToHosts(before), words, program);
  }

  v1::ScaleRequest Scale(int ranks) { return Move(first_, "", static_cast<uint32_t>(ranks)); }
  uint32_t RanksAtAll() { return RanksAt(first_) + RanksAt(second_); }

  bool BecomesEmpty(int host) const {
    const absl::Time latest = absl::Now() + absl::Seconds(30);
    while (!network_->ProcessesOf(host).empty()) {
      if (absl::Now() > latest) return false;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return true;
  }

  // As the launcher has said, without the last ranks.
  static std::vector<Leg> Legs(const std::string& said) {
    const std::string before = "handed over the state after step ";
    std::vector<Leg> legs;
    for (size_t at = said.find(before); at != std::string::npos; at = said.find(before, at + 1)) {
      const size_t ranks = said.rfind(": ", at) + 2;
      legs.push_back({std::atoi(said.c_str() + ranks),
                      std::strtoull(said.c_str() + at + before.size(), nullptr, 10)});
    }
    return legs;
  }

  // It trains on, and ends with the bits of a run on one host that was resumed with each of these
  // numbers of ranks, and with `last` at the end.
  void ExpectBitsOfResumes(TrainerProcess* trainer, int last, const Words& more = {}) {
    ASSERT_TRUE(WaitForStep(*trainer, LastStep(log_) + kMore)) << trainer->output();
    trainer->Signal(SIGINT);
    EXPECT_EQ(trainer->Wait(), 128 + SIGINT) << trainer->output();
    const nlohmann::json scaled = Report();
    ASSERT_FALSE(scaled.is_null()) << trainer->output();
    std::vector<Leg> legs = Legs(trainer->output());
    legs.push_back({last, scaled["steps_done"].get<uint64_t>()});
    const std::string save = folder_ / "save";
    for (const Leg& leg : legs) {
      Words words = {"--ranks", absl::StrCat(leg.ranks), "--save", save};
      if (&leg != &legs.front()) words.emplace_back("--resume");
      words.insert(words.end(), more.begin(), more.end());
      const CommandResult result = RunTrainer(Training(absl::StrCat(leg.until), words),
                                              {"GEMINID_SOCKET=" + SocketOf("home")});
      ASSERT_EQ(result.code, 0) << result.err;
    }
    const nlohmann::json resumed = Report();
    EXPECT_EQ(scaled["weights_sha256"], resumed["weights_sha256"]) << trainer->output();
    EXPECT_EQ(scaled["loss_hex"].back(), resumed["loss_hex"].back());
  }

  const std::string first_ = base::NetworkHosts::NameOf(0);
  const std::string second_ = base::NetworkHosts::NameOf(1);
  std::unique_ptr<base::NetworkHosts> network_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_SCALED_OVER_HOSTS_H_
