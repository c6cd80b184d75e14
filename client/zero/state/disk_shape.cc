#include "client/zero/state/disk_shape.h"

#include <algorithm>

#include "base/pages.h"
#include "client/disk/extent_map.h"
#include "client/disk/stripes.h"
#include "client/zero/state/places_ahead.h"

namespace geminid::zero {
namespace {

constexpr uint64_t kArrayAlignment = 64;

}  // namespace

uint64_t DiskShape::remainder_bytes() const {
  const bool has_one = type == DataType::kBFloat16;
  return has_one ? base::RoundUp(elements * sizeof(int16_t), kArrayAlignment) : 0;
}

uint64_t DiskShape::array_bytes() const {
  return base::RoundUp(elements * SizeOf(state_type), kArrayAlignment);
}

uint64_t DiskShape::payload_bytes() const { return remainder_bytes() + arrays * array_bytes(); }

std::vector<uint64_t> PayloadsOf(const std::vector<DiskShape>& extents) {
  std::vector<uint64_t> payloads;
  for (const DiskShape& shape : extents) payloads.push_back(shape.payload_bytes());
  return payloads;
}

std::vector<uint64_t> DiskMemoryBytes(const std::vector<DiskShape>& extents) {
  uint64_t weight = 0;
  for (const DiskShape& shape : extents) {
    weight = std::max(weight, shape.elements * SizeOf(shape.type));
  }
  const uint64_t buffer = disk::ExtentMap(PayloadsOf(extents)).largest() + disk::kBlockBytes;
  std::vector<uint64_t> bytes = {kDiskRecordBytes + extents.size() * sizeof(uint32_t), buffer};
  bytes.insert(bytes.end(), kPlacesAhead, buffer + weight);
  return bytes;
}

uint64_t DiskFileBytes(const std::vector<DiskShape>& extents, size_t folders) {
  const uint64_t bytes = disk::ExtentMap(PayloadsOf(extents)).total_bytes();
  if (bytes == 0) return 0;
  return folders * disk::BytesOfFile({.files = static_cast<uint32_t>(folders)}, bytes);
}

}  // namespace geminid::zero
