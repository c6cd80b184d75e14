// Finds one round of an evaluation's operators by detecting that they repeat. The round is the
// sample for a plan of evaluation. Pure.
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
  // An operator needs the chunks `required`, of which other operators hold `held`.
  void Add(const std::vector<uint32_t>& required, const std::vector<uint32_t>& held);
  // The recorder of the last operator.
  Recorder& recorder() { return recorder_; }

  // After an operator, or at the evaluation's `end`. Returns one round and begins a new search;
  // empty: nothing new. After each sample twice as many rounds must pass before the next one.
  std::vector<Moment> Take(bool end);

 private:
  Recorder recorder_;
  std::vector<std::vector<uint32_t>> operators_;
  std::vector<size_t> borders_;  // by prefix of operators_: its longest proper border
  uint64_t rounds_ = 0;          // that ended without becoming a sample
  uint64_t patience_ = 0;        // rounds to let pass before the next sample
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_EVALUATION_SAMPLE_H_
