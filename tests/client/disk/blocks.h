// Memory for disk tests, with contents that differ by seed.
#ifndef GEMINID_TESTS_CLIENT_DISK_BLOCKS_H_
#define GEMINID_TESTS_CLIENT_DISK_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "client/disk/stripes.h"

namespace geminid::disk {

class Blocks {
 public:
  explicit Blocks(uint64_t bytes)
      : bytes_(base::RoundUp(bytes, kBlockBytes)),
        data_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, bytes_)), &std::free) {
    Fill(0);
  }

  // Fills with bytes that depend on the seed; zeros for seed 0.
  void Fill(uint64_t seed) {
    uint64_t state = seed;
    for (std::byte& byte : span()) {
      state = state * 6364136223846793005u + (seed == 0 ? 0 : 1442695040888963407u);
      byte = static_cast<std::byte>(state >> 56);
    }
  }

  std::span<std::byte> span() { return {data_.get(), bytes_}; }

 private:
  uint64_t bytes_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

}  // namespace geminid::disk

#endif  // GEMINID_TESTS_CLIENT_DISK_BLOCKS_H_
