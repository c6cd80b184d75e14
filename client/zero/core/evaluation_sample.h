// One round of an evaluation's operators, found by their coming round: what a plan of evaluation is
// made from. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_EVALUATION_SAMPLE_H_
#define GEMINID_CLIENT_ZERO_CORE_EVALUATION_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/zero/core/recorder.h"

namespace geminid::zero {

class EvaluationSample {
 public:
  void Clear();
  // An operator needs these chunks, of which others hold `held`.
  void Add(const std::vector<uint32_t>& required, const std::vector<uint32_t>& held);
  // Of the last operator.
  Recorder& recorder() { return recorder_; }

  // After an operator, or at the evaluation's `end`: one round, and the search begins anew. Empty
  // if there is nothing new; the more often it was something, the more rounds must have passed.
  std::vector<Moment> Take(bool end);

 private:
  Recorder recorder_;
  std::vector<std::vector<uint32_t>> operators_;
  std::vector<size_t> borders_;  // of each beginning of operators_: the longest proper border
  uint64_t rounds_ = 0;          // that ended without becoming a sample
  uint64_t patience_ = 0;        // rounds to let pass before the next sample
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_EVALUATION_SAMPLE_H_
