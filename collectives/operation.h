// Describes a rank's operation, so that ranks that disagree get an error and not a wrong result.
#ifndef GEMINID_COLLECTIVES_OPERATION_H_
#define GEMINID_COLLECTIVES_OPERATION_H_

#include <array>
#include <cstdint>
#include <string>

#include "geminid/buffer.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// Sent between processes as raw memory, since the ranks of a job run the same build. Must be equal
// on all ranks of a collective. The receiver of a message compares count, dtype and tag.
struct Operation {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kUint8;
  ReduceOp reduce = ReduceOp::kSum;
  uint8_t zero = 0;
  int32_t root_or_tag = 0;
  uint64_t count = 0;  // elements: per rank for all-gather and all-to-all, else in all
  double scale = 1.0;
  std::array<char, kMaxLabelBytes> label = {};  // text, padded with zeros

  friend bool operator==(const Operation&, const Operation&) = default;
};
static_assert(sizeof(Operation) == 24 + kMaxLabelBytes,
              "Operation has no padding and crosses processes");

// "AllReduce of 12 float32, op sum, scale 0.25", then " for " and the label if there is one.
std::string Describe(const Operation& operation);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_OPERATION_H_
