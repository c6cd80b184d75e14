// A running geminid-train with its ranks and its daemon, to do bad things to.
#ifndef GEMINID_TESTS_END_TO_END_TRAINING_PROCESS_H_
#define GEMINID_TESTS_END_TO_END_TRAINING_PROCESS_H_

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/base/temporary_folder.h"

namespace geminid {

// As a flag: the run's ExportFolder().
inline constexpr char kExportHere[] = "{export}";
// As a flag: the file of WaitForSteps().
inline constexpr char kLogHere[] = "{log}";

class TrainingProcess {
 public:
  // Starts it on a text of its own, with every temporary file under a folder of its own.
  // `environment`: in addition to its own.
  explicit TrainingProcess(const std::vector<std::string>& flags,
                           std::vector<std::string> environment = {});
  ~TrainingProcess();
  TrainingProcess(const TrainingProcess&) = delete;
  TrainingProcess& operator=(const TrainingProcess&) = delete;

  pid_t pid() const { return pid_; }
  // To it and its ranks.
  void Signal(int number) const;
  // Waits until its words contain `text`; false if it ends, or 60 seconds pass, before.
  bool WaitForWords(const std::string& text) const;
  // The same for the steps in its log (--log).
  bool WaitForSteps(int count) const;
  std::string Words() const;
  // Its direct children that run the program of this name; "geminid" is the daemon.
  std::vector<pid_t> Children(const std::string& program) const;
  // What keeps the daemon's descriptors.
  std::vector<pid_t> Holders() const;
  // From now on its daemon cannot be started again.
  void RemoveDaemonProgram() const;
  // In its folder; its values, if it wrote them there (--export).
  std::filesystem::path ExportFolder() const { return folder_ / "export"; }
  std::string ExportedBytes() const;
  // The exit code, 128 plus the signal, or -1 if it has not ended within `seconds`.
  int WaitForEnd(int seconds);
  // What it left in its folder, its text, words, values and the daemon's program apart.
  std::vector<std::string> Leftovers() const;

 private:
  bool WaitWhileItRuns(const std::function<bool()>& condition) const;

  const base::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  pid_t pid_ = -1;
  bool ended_ = false;
};

// True once the process is gone; false if it still is there after `seconds`.
bool IsGone(pid_t pid, int seconds);

}  // namespace geminid

#endif  // GEMINID_TESTS_END_TO_END_TRAINING_PROCESS_H_
