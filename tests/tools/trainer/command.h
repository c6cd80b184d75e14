// Runs geminid-train as its users do.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_COMMAND_H_
#define GEMINID_TESTS_TOOLS_TRAINER_COMMAND_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace geminid::trainer {

struct CommandResult {
  int code = -1;  // the exit code, or 128 plus the signal that ended the run
  std::string out;
  std::string err;
  uint64_t peak_resident_bytes = 0;  // of the largest of its processes
};

// The words of a command that runs the program. Variables of launchers and of Geminid are removed
// from the environment, and `environment` ("NAME=value") is added.
std::vector<std::string> TrainerCommand(std::vector<std::string> arguments,
                                        const std::vector<std::string>& environment);

// Runs such a command and waits for its end.
CommandResult RunTrainer(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment = {});

// The same after `setup`, a line for the shell.
CommandResult RunTrainerUnder(const std::string& setup, const std::vector<std::string>& arguments,
                              const std::vector<std::string>& environment = {});

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_COMMAND_H_
