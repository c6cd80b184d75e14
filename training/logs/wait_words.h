// The messages of a rank whose job waits for memory.
#ifndef GEMINID_TRAINING_LOGS_WAIT_WORDS_H_
#define GEMINID_TRAINING_LOGS_WAIT_WORDS_H_

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace geminid::trainer {

// A wait of less than a second is not worth a word: the ranks of a job never come in the same
// instant. A longer one is, and then whenever its reason changes. A run may wait several times.
class WaitWords {
 public:
  // Told again and again while the job waits, at least twice a second, and for what. The line to
  // write, if any.
  std::optional<std::string> Waits(absl::Time now, const std::string& what);

 private:
  absl::Time began_ = absl::InfinitePast();
  absl::Time last_ = absl::InfinitePast();
  std::string said_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_WAIT_WORDS_H_
