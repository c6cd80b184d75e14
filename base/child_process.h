// Starts a program with a defined environment.
#ifndef GEMINID_BASE_CHILD_PROCESS_H_
#define GEMINID_BASE_CHILD_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::base {

struct ChildProgram {
  // A descriptor of this process, which keeps it, and its number in the child.
  struct PassedDescriptor {
    int ours = -1;
    int theirs = -1;
  };

  std::vector<std::string> arguments{};  // the first is the program's path
  // "NAME=value"; nullopt: this process's environment.
  std::optional<std::vector<std::string>> environment = std::nullopt;
  std::vector<PassedDescriptor>
      descriptors{};  // any numbers, also those of other passed descriptors
  // A descriptor of the folder that it starts in; relative paths in `arguments` and `output` are
  // relative to that. -1: this process's.
  int folder = -1;
  bool reads_input = true;  // false: its standard input is empty
  // A file to which its standard output is appended; created for this user alone if it does not
  // exist. Empty: this process's standard output.
  std::string output{};
  bool errors_to_output = false;  // standard error goes there too
};

// Returns the child's process number, which the caller must wait for. Besides the descriptors in
// `program`, the child has those of this process without close-on-exec. No signal is blocked,
// ignored or handled in it, whatever this process does with signals. Errors name the program:
// NOT_FOUND, PERMISSION_DENIED; RESOURCE_EXHAUSTED if the system lacks a process, memory or
// descriptor for it; else as SystemError.
absl::StatusOr<pid_t> StartChild(const ChildProgram& program);

}  // namespace geminid::base

#endif  // GEMINID_BASE_CHILD_PROCESS_H_
