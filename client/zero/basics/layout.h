// How parameters are packed into chunks, and how chunks are divided into granules. Pure arithmetic.
//
//   chunk (gathered, on the device):  | tensor | tensor |  tensor  | padding |
//   shards, one per rank:             |     rank 0      |      rank 1        |
//   granules of a shard:              |   g0   |   g1   |   g0     |   g1    |
//
// Tensors are packed in order (next fit), each aligned to 64 bytes. A tensor larger than a chunk
// has a chunk of its own. A chunk holds elements of one type; each type is packed independently of
// the others. A granule is the unit of the optimizer's out-of-place update. All granules of one
// type have the same size, so one spare granule serves them all. The more granules there are, the
// less memory the spare adds.
//
// The tensors of a unit share chunks only with each other. Such a chunk is as small as whole
// granules allow. A unit too small to fill one granule of every rank shares chunks with the tensors
// that have no unit.
#ifndef GEMINID_CLIENT_ZERO_BASICS_LAYOUT_H_
#define GEMINID_CLIENT_ZERO_BASICS_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/data_type.h"

namespace geminid::zero {

// The most elements of one tensor, of all tensors, and of a chunk.
inline constexpr uint64_t kMaxElements = uint64_t{1} << 40;

struct TensorShape {
  uint64_t elements = 0;
  bool trainable = true;
  DataType type = DataType::kBFloat16;  // of the gathered weight
  std::optional<uint32_t> unit = {};    // the tensors of one unit are used together
  bool whole = false;                   // never divided: the tensor lies within one granule
};

struct LayoutOptions {
  int world_size = 1;
  uint64_t chunk_elements = 0;  // 0: search
  // A chunk's extent on the device is a multiple of this.
  uint64_t extent_bytes = 4096;
};

struct TensorPlace {
  uint32_t chunk = 0;
  uint64_t offset = 0;  // elements from the start of the chunk
};

struct ChunkShape {
  uint64_t elements = 0;       // padded; world_size * granules * granule_elements
  uint64_t used_elements = 0;  // elements that belong to tensors
  DataType type = DataType::kBFloat16;
  uint64_t granule_elements = 0;
  uint32_t first_granule = 0;  // the first one of this rank's shard, in the layout's numbering
  uint32_t granules = 0;       // per rank
  bool trainable = true;
  bool whole = false;             // its tensors are never divided
  std::vector<uint32_t> tensors;  // in order of offset
  std::string name{};             // made of its tensors' names, for people (NameChunks)

  uint64_t element_bytes() const { return SizeOf(type); }
  uint64_t bytes() const { return elements * element_bytes(); }
  uint64_t granule_bytes() const { return granule_elements * element_bytes(); }
};

struct Layout {
  std::vector<TensorPlace> tensors;
  std::vector<ChunkShape> chunks;
  // Of an ordinary chunk. With several types: of the type that has the most elements.
  uint64_t chunk_elements = 0;
  uint32_t granules = 0;  // per rank, over all chunks
  uint64_t used_elements = 0;
  uint64_t padding_elements = 0;  // over all chunks: elements minus used
};

// INVALID_ARGUMENT for no tensors, a tensor without elements, or sizes beyond 2^40 elements. A
// tensor is ordinary if it is no larger than the mean plus three standard deviations. The search
// tries chunk sizes from the largest ordinary tensor to twice that, and takes the one with the
// least padding; among equals, the smallest. It packs the list a few thousand times. Whole tensors
// share chunks only with each other. Such a chunk has one granule per rank, no smaller than the
// largest whole tensor.
absl::StatusOr<Layout> MakeLayout(std::span<const TensorShape> tensors,
                                  const LayoutOptions& options);

// Gives each chunk the name of its tensor, or "FIRST to LAST". `tensors` are all tensors' names. A
// name too long for the daemon loses its start, because its end says the most.
void NameChunks(std::span<const std::string> tensors, Layout* layout);

// The chunk's name, or its number if it has no name.
std::string NameOf(const Layout& layout, uint32_t chunk);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_BASICS_LAYOUT_H_
