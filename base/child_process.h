// Starting a program: what it finds when it begins.
#ifndef GEMINID_BASE_CHILD_PROCESS_H_
#define GEMINID_BASE_CHILD_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::base {

struct ChildProgram {
  // A descriptor of this process, which stays its own, and the child's number for it.
  struct Gift {
    int ours = -1;
    int theirs = -1;
  };

  std::vector<std::string> arguments{};  // the first is the program's path
  // "NAME=value"; none: this process's own.
  std::optional<std::vector<std::string>> environment = std::nullopt;
  std::vector<Gift> gifts{};  // numbers may be any, those of other gifts too
  bool reads_input = true;    // else its standard input is empty
  // A file that its standard output is appended to, made for this user alone where there is none.
  // Empty: as this process's.
  std::string output{};
  bool errors_to_output = false;  // standard error goes there too
};

// The child's process number; it is the caller's to wait for. Beside what `program` says the child
// has the descriptors of this process that are not closed on exec; no signal is blocked in it, and
// none is ignored or handled, whatever this process does with signals.
// Errors, naming the program: NOT_FOUND, PERMISSION_DENIED; RESOURCE_EXHAUSTED when the system has
// no process, memory or descriptor for it; else as SystemError.
absl::StatusOr<pid_t> StartChild(const ChildProgram& program);

}  // namespace geminid::base

#endif  // GEMINID_BASE_CHILD_PROCESS_H_
