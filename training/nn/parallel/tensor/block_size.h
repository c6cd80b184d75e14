// Checks that a span has the size of this rank's block.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_BLOCK_SIZE_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_BLOCK_SIZE_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace geminid::collectives {

// INVALID_ARGUMENT for a span that is not the size of this rank's block.
inline absl::Status CheckBlockSize(const char* what, size_t given, size_t needed) {
  if (given == needed) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has %d elements; this rank's block of it has %d", what, given, needed));
}

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_BLOCK_SIZE_H_
