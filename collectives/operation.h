// What a rank says it is doing, so that ranks that disagree get a message and not a wrong answer.
#ifndef GEMINID_COLLECTIVES_OPERATION_H_
#define GEMINID_COLLECTIVES_OPERATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "geminid/buffer.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// Travels between processes as it lies in memory (ranks of one job run one build of the library).
// Equal on all ranks of a collective; a receiver compares count, dtype and tag of a message.
struct Operation {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kUint8;
  ReduceOp reduce = ReduceOp::kSum;
  uint8_t zero = 0;
  int32_t root_or_tag = 0;
  uint64_t count = 0;  // elements: per rank for all-gather and all-to-all, in all for the others
  double scale = 1.0;
  std::array<char, kMaxLabelBytes> label = {};  // text, zeros behind it

  friend bool operator==(const Operation&, const Operation&) = default;
};
static_assert(sizeof(Operation) == 24 + kMaxLabelBytes,
              "Operation has no padding and crosses processes");

// "AllReduce of 12 float32, op sum, scale 0.25", and " for " its label if it has one.
std::string Describe(const Operation& operation);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_OPERATION_H_
