// geminid-train while it runs: its output, and signals to it.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_TRAINER_PROCESS_H_
#define GEMINID_TESTS_TOOLS_TRAINER_TRAINER_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace geminid::trainer {

// Destroying the object kills the process if it still runs.
class TrainerProcess {
 public:
  // The process's standard streams are its controlling terminal, of this width.
  TrainerProcess(const std::vector<std::string>& arguments, int columns,
                 const std::vector<std::string>& environment = {});
  ~TrainerProcess();
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  void Type(const std::string& keys) const;

  // True when the process has printed `text`; false if it ends or is silent for too long before.
  bool WaitFor(const std::string& text);
  // The same, when it has printed `then` somewhere after `text`.
  bool WaitFor(const std::string& text, const std::string& then);
  // The same, when it has printed "step N/" of this step or a later one. Its line is not redrawn at
  // every step.
  bool WaitForStep(int step);
  // The exit code, or 128 plus the signal that ended the process; -1 if it does not end.
  int Wait();

  // The whole output so far.
  const std::string& output() const { return output_; }

  // The processes that it has started, selected by the beginning of their command line.
  std::vector<pid_t> Children(const std::string& command) const;
  // The processor time of the process and of the processes that it has started.
  absl::Duration Used() const;

 private:
  bool Read(absl::Time deadline);
  bool ReadUntil(absl::FunctionRef<bool()> said);

  pid_t pid_ = -1;
  base::UniqueFd terminal_;
  std::string output_;
};

// The processes that any thread of `pid`, or of this process, has started, selected by the
// beginning of their command line.
std::vector<pid_t> ChildrenOf(pid_t pid, const std::string& command);
std::vector<pid_t> OwnChildren(const std::string& command);
std::string CommandLineOf(pid_t pid);  // a blank follows each argument
std::string ShortNameOf(pid_t pid);

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_TRAINER_PROCESS_H_
