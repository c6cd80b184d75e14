// Parses the command lines of `geminid-train` and of `geminid-train generate`.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_COMMAND_LINE_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_COMMAND_LINE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Exactly one of the first four members is set.
struct CommandLine {
  std::optional<TrainOptions> options;
  std::optional<GenerateOptions> generate = std::nullopt;
  bool is_host = false;   // runs the ranks of one host, for a program on another host
  std::string text = "";  // of --help or --version, to print and exit with 0
  std::vector<std::string> notes = {};  // lines for the user who gave the arguments
};

// `arguments` do not include the program's name. INVALID_ARGUMENT or NOT_FOUND names the flag and
// says what would be right.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_COMMAND_LINE_H_
