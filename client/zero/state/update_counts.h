// Counts the updates of each tensor, if some steps leave tensors out. The optimizer's step depends
// on this count. PyTorch counts in the same way.
#ifndef GEMINID_CLIENT_ZERO_STATE_UPDATE_COUNTS_H_
#define GEMINID_CLIENT_ZERO_STATE_UPDATE_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "client/zero/state/step_notes.h"

namespace geminid::zero {

// Not thread-safe.
class UpdateCounts {
 public:
  UpdateCounts() = default;  // nothing is counted
  explicit UpdateCounts(size_t tensors) : counts_(tensors) {}

  // The counts as they are stored and saved.
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(counts_)); }
  // `bytes` has as many bytes as bytes().
  void Set(std::span<const std::byte> bytes) {
    if (!counts_.empty()) std::memcpy(counts_.data(), bytes.data(), bytes.size());
  }

  // Counts an update of all tensors that are not skipped.
  void Count(std::span<const TensorRates> rates) {
    for (size_t t = 0; t < counts_.size(); ++t) counts_[t] += rates[t].skip ? 0 : 1;
  }
  // 0: updates are not counted, and the tensor has had all of them.
  uint64_t of(size_t tensor) const { return counts_.empty() ? 0 : counts_[tensor]; }

 private:
  std::vector<uint64_t> counts_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_UPDATE_COUNTS_H_
