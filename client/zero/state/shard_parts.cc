#include "client/zero/state/shard_parts.h"

#include <algorithm>

namespace geminid::zero {

std::vector<ShardPart> PartsOfTensor(const Layout& layout, uint32_t tensor, uint64_t elements,
                                     int rank) {
  const TensorPlace& place = layout.tensors[tensor];
  const ChunkShape& chunk = layout.chunks[place.chunk];
  const uint64_t shard_begin =
      static_cast<uint64_t>(rank) * chunk.granules * chunk.granule_elements;
  std::vector<ShardPart> parts;
  for (uint32_t g = 0; g < chunk.granules; ++g) {
    const uint64_t granule_begin = shard_begin + g * chunk.granule_elements;
    const uint64_t begin = std::max(granule_begin, place.offset);
    const uint64_t end = std::min(granule_begin + chunk.granule_elements, place.offset + elements);
    if (begin >= end) continue;
    parts.push_back({tensor, begin - place.offset, chunk.first_granule + g, begin - granule_begin,
                     end - begin});
  }
  return parts;
}

}  // namespace geminid::zero
