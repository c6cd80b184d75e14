// geminid-train while it runs: what it says, and signals to it.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_TRAINER_PROCESS_H_
#define GEMINID_TESTS_TOOLS_TRAINER_TRAINER_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace geminid::trainer {

// Destroying it kills the process, if it still runs.
class TrainerProcess {
 public:
  // Its standard streams are a terminal of that width, which controls it.
  TrainerProcess(const std::vector<std::string>& arguments, int columns,
                 const std::vector<std::string>& environment = {});
  ~TrainerProcess();
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  void Type(const std::string& keys) const;

  // True when it has said `text`; false when it ends, or is silent for too long, before.
  bool WaitFor(const std::string& text);
  // The same, when it has said `then` somewhere after `text`.
  bool WaitFor(const std::string& text, const std::string& then);
  // The same, when it has said "step N/" of this step or a later one: its line is not drawn anew at
  // every step.
  bool WaitForStep(int step);
  // Its exit code, 128 plus the signal if one ended it; -1 if it does not end.
  int Wait();

  // Everything said so far.
  const std::string& output() const { return output_; }

  // The processes it has started, by the beginning of their command line.
  std::vector<pid_t> Children(const std::string& command) const;
  // Of the processor, by itself and the processes it has started.
  absl::Duration Used() const;

 private:
  bool Read(absl::Time deadline);
  bool ReadUntil(absl::FunctionRef<bool()> said);

  pid_t pid_ = -1;
  base::UniqueFd terminal_;
  std::string output_;
};

// The processes that any thread of `pid`, or of this process, has started, by the beginning of their
// command line.
std::vector<pid_t> ChildrenOf(pid_t pid, const std::string& command);
std::vector<pid_t> OwnChildren(const std::string& command);
std::string CommandLineOf(pid_t pid);  // arguments end with a blank
std::string ShortNameOf(pid_t pid);

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_TRAINER_PROCESS_H_
