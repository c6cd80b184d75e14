// Runs geminid-train as its users do.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_COMMAND_H_
#define GEMINID_TESTS_TOOLS_TRAINER_COMMAND_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace geminid::trainer {

struct CommandResult {
  int code = -1;  // of exit; 128 plus the signal if one ended it
  std::string out;
  std::string err;
  uint64_t peak_resident_bytes = 0;  // of the largest of its processes
};

// The words of a command that runs the program with the variables of launchers and of Geminid
// removed from the environment and `environment` ("NAME=value") added.
std::vector<std::string> TrainerCommand(std::vector<std::string> arguments,
                                        const std::vector<std::string>& environment);

// Runs the program with the variables of launchers and of Geminid removed from the environment and
// `environment` ("NAME=value") added; waits for it.
CommandResult RunTrainer(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment = {});

// The same after `setup`, a line for the shell.
CommandResult RunTrainerUnder(const std::string& setup, const std::vector<std::string>& arguments,
                              const std::vector<std::string>& environment = {});

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_COMMAND_H_
