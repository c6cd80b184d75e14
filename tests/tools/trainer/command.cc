#include "tests/tools/trainer/command.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/base/dies_with_test.h"
#include "tests/base/temporary_folder.h"

namespace geminid::trainer {
namespace {

std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The word after `flag`; empty if there is none.
std::string ValueOf(const std::vector<std::string>& arguments, const std::string& flag) {
  const auto at = std::ranges::find(arguments, flag);
  return at == arguments.end() || at + 1 == arguments.end() ? "" : *(at + 1);
}

// A run's need of device memory grows with its threads. A test that limits the device states the
// limit for two threads in total, on any machine.
void BoundThreads(std::vector<std::string>* arguments) {
  constexpr int kThreads = 2;
  const auto given = [&](const char* flag) { return !ValueOf(*arguments, flag).empty(); };
  if (!given("--device-memory") || given("--threads")) return;
  int ranks = given("--parallel") || given("--hosts") ? kThreads : 1;
  if (given("--ranks") && !absl::SimpleAtoi(ValueOf(*arguments, "--ranks"), &ranks)) return;
  const int each = std::max(1, kThreads / std::max(1, ranks));
  arguments->insert(arguments->end(), {"--threads", absl::StrCat(each)});
}

}  // namespace

std::vector<std::string> TrainerCommand(std::vector<std::string> arguments,
                                        const std::vector<std::string>& environment) {
  BoundThreads(&arguments);
  std::vector<std::string> words = {"/usr/bin/env"};
  for (const char* variable : {"RANK", "WORLD_SIZE", "GEMINID_SOCKET", "GEMINID_DEVICE",
                               "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    words.insert(words.end(), {"-u", variable});
  }
  words.insert(words.end(), "GEMINID_DAEMON=" GEMINID_DAEMON_BINARY);
  words.insert(words.end(), environment.begin(), environment.end());
  words.insert(words.end(), GEMINID_TRAIN_BINARY);
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

CommandResult RunTrainer(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment) {
  return RunTrainerUnder("true", arguments, environment);
}

CommandResult RunTrainerUnder(const std::string& setup, const std::vector<std::string>& arguments,
                              const std::vector<std::string>& environment) {
  const base::TemporaryFolder folder;
  const std::string out = folder / "out";
  const std::string err = folder / "err";
  std::vector<std::string> words = {"/bin/sh", "-c",
                                    setup + "; exec \"$@\" >'" + out + "' 2>'" + err + "'", "sh"};
  const std::vector<std::string> command = TrainerCommand(arguments, environment);
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t test = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    base::DieWithTest(test);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  rusage used = {};
  wait4(pid, &status, 0, &used);
  constexpr int kSignalBase = 128;
  constexpr uint64_t kUnitOfMaxRssBytes = 1024;  // getrusage(2)
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status),
          .out = ReadFile(out),
          .err = ReadFile(err),
          .peak_resident_bytes = kUnitOfMaxRssBytes * static_cast<uint64_t>(used.ru_maxrss)};
}

}  // namespace geminid::trainer
