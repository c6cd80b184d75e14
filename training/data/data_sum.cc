#include "training/data/data_sum.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/shm/crc32c.h"
#include "training/data/images.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kBlockTokens = uint64_t{64} << 10;

// Over labels, and of each image that counts the pixels: as many bytes as so many tokens have.
absl::StatusOr<std::string> SumOfImages(const Images& images, uint64_t most_tokens) {
  const uint64_t all = images.tokens();
  const uint64_t fitting = most_tokens * sizeof(int32_t) / images.pixel_bytes(0);
  const uint64_t counted = std::clamp<uint64_t>(fitting, 1, all);
  std::vector<int32_t> labels(all);
  GEMINID_RETURN_IF_ERROR(images.Read(0, labels));
  const std::span<const std::byte> bytes = std::as_bytes(std::span(labels));
  uint32_t crc = shm::Crc32c(bytes.data(), bytes.size(), 0);
  std::vector<std::byte> pixels;
  for (uint64_t i = 0; i < counted; ++i) {
    const uint64_t image = i * all / counted;
    pixels.resize(images.pixel_bytes(image));
    GEMINID_RETURN_IF_ERROR(images.ReadPixels(image, pixels));
    crc = shm::Crc32c(pixels.data(), pixels.size(), crc);
  }
  return absl::StrFormat("%d images, CRC-32C %08x", all, crc);
}

}  // namespace

absl::StatusOr<std::string> SumOfData(const TokenSource& source, uint64_t most_tokens) {
  if (source.images() != nullptr) return SumOfImages(*source.images(), most_tokens);
  const uint64_t tokens = source.tokens();
  const uint64_t block = std::min({kBlockTokens, tokens, most_tokens});
  const bool is_whole = tokens <= most_tokens;
  const uint64_t blocks =
      block == 0 ? 0 : (is_whole ? (tokens + block - 1) / block : most_tokens / block);
  std::vector<int32_t> values(block);
  uint32_t crc = 0;
  for (uint64_t i = 0; i < blocks; ++i) {
    // The last block ends at the end of the data.
    const uint64_t first =
        is_whole ? i * block
        : blocks == 1
            ? 0
            : static_cast<uint64_t>(static_cast<double>(tokens - block) * static_cast<double>(i) /
                                    static_cast<double>(blocks - 1));
    values.resize(std::min(block, tokens - first));
    GEMINID_RETURN_IF_ERROR(source.Read(first, values));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    crc = shm::Crc32c(bytes.data(), bytes.size(), crc);
  }
  return absl::StrFormat("%d %s, CRC-32C %08x", tokens, source.unit(), crc);
}

}  // namespace geminid::trainer
