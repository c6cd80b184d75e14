// The messages of a rank whose job waits for memory.
#ifndef GEMINID_TRAINING_LOGS_WAIT_WORDS_H_
#define GEMINID_TRAINING_LOGS_WAIT_WORDS_H_

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace geminid::trainer {

// Waits of less than a second get no message, because the ranks of a job never arrive at the same
// time. A longer wait gets one, and another whenever its reason changes. A run may wait many times.
class WaitWords {
 public:
  // The caller repeats this at least twice a second while the job waits for `what`. Returns the
  // message to print, if one is due.
  std::optional<std::string> Waits(absl::Time now, const std::string& what);

 private:
  absl::Time began_ = absl::InfinitePast();
  absl::Time last_ = absl::InfinitePast();
  std::string said_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_WAIT_WORDS_H_
