// The positions of tensors' parts in a rank's shard. Pure arithmetic.
#ifndef GEMINID_CLIENT_ZERO_STATE_SHARD_PARTS_H_
#define GEMINID_CLIENT_ZERO_STATE_SHARD_PARTS_H_

#include <cstdint>
#include <vector>

#include "client/zero/basics/layout.h"

namespace geminid::zero {

// Consecutive elements of one tensor within one granule.
struct ShardPart {
  uint32_t tensor = 0;
  uint64_t tensor_offset = 0;  // elements
  uint32_t granule = 0;
  uint64_t granule_offset = 0;
  uint64_t elements = 0;
};

// The parts of `tensor` in the rank's shard, in order. `elements` is the size of the whole tensor.
std::vector<ShardPart> PartsOfTensor(const Layout& layout, uint32_t tensor, uint64_t elements,
                                     int rank);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_SHARD_PARTS_H_
