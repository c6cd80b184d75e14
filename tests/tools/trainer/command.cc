#include "tests/tools/trainer/command.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/base/dies_with_test.h"
#include "tests/base/temporary_folder.h"

namespace geminid::trainer {
namespace {

std::string ReadFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

std::vector<std::string> TrainerCommand(const std::vector<std::string>& arguments,
                                        const std::vector<std::string>& environment) {
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
  waitpid(pid, &status, 0);
  constexpr int kSignalBase = 128;
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status),
          .out = ReadFile(out),
          .err = ReadFile(err)};
}

}  // namespace geminid::trainer
