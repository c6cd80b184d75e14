#include "client/disk/extent_map.h"

#include <algorithm>
#include <utility>

#include "base/pages.h"
#include "client/disk/extent_header.h"
#include "client/disk/stripes.h"

namespace geminid::disk {

ExtentMap::ExtentMap(std::vector<uint64_t> payload_bytes)
    : payload_bytes_(std::move(payload_bytes)), offsets_{0} {
  for (const uint64_t payload : payload_bytes_) {
    const uint64_t header = payload == 0 ? 0 : ExtentHeaderBytes(payload);
    offsets_.push_back(offsets_.back() + header + base::RoundUp(payload, kBlockBytes));
  }
}

uint64_t ExtentMap::largest() const {
  uint64_t largest = 0;
  for (size_t extent = 0; extent < size(); ++extent) largest = std::max(largest, bytes(extent));
  return largest;
}

}  // namespace geminid::disk
