// Writes the files of --log and --tensorboard while a run goes on.
#ifndef GEMINID_TRAINING_LOGS_RUN_LOG_H_
#define GEMINID_TRAINING_LOGS_RUN_LOG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "training/logs/step_record.h"

namespace geminid::trainer {

struct RunLogOptions {
  std::string lines{};        // file of one JSON object a step; empty: none
  std::string tensorboard{};  // folder for an event file, made if it is missing; empty: none
  bool appends = false;       // to `lines`, for a resumed run; else the file must be new or empty
};

// Every step is in the files when Add returns. Readers see whole lines and records only.
class RunLog {
 public:
  // Errors name the file. ALREADY_EXISTS: the file has lines of another run.
  static absl::StatusOr<RunLog> Open(const RunLogOptions& options, absl::Time now);

  absl::Status Add(const StepRecord& record);

 private:
  struct File {
    std::string path;
    base::UniqueFd fd;
    absl::Status Append(const std::string& text) const;
  };
  // `flags`: further ones for open(2).
  static absl::StatusOr<File> OpenFile(const std::string& path, int flags = 0);

  File lines_;
  File events_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_RUN_LOG_H_
