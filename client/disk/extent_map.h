// The offsets of extents in the space of striped files. Pure arithmetic.
#ifndef GEMINID_CLIENT_DISK_EXTENT_MAP_H_
#define GEMINID_CLIENT_DISK_EXTENT_MAP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace geminid::disk {

// Extents are numbered.
class ExtentMap {
 public:
  // An extent without payload takes no space, and is neither read nor written.
  explicit ExtentMap(std::vector<uint64_t> payload_bytes);

  size_t size() const { return payload_bytes_.size(); }
  uint64_t payload_bytes(size_t extent) const { return payload_bytes_[extent]; }
  uint64_t offset(size_t extent) const { return offsets_[extent]; }
  // The size of a buffer for the extent: header, payload and padding.
  uint64_t bytes(size_t extent) const { return offsets_[extent + 1] - offsets_[extent]; }
  uint64_t largest() const;
  uint64_t total_bytes() const { return offsets_.back(); }

 private:
  std::vector<uint64_t> payload_bytes_;
  std::vector<uint64_t> offsets_;  // and the end of the last extent
};

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_EXTENT_MAP_H_
