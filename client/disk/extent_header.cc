#include "client/disk/extent_header.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/disk/stripes.h"
#include "proto/shm/crc32c.h"

namespace geminid::disk {
namespace {

constexpr uint64_t kMagic = 0x31544e5458454d47;  // "GMEXTNT1"
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

struct Header {
  uint64_t magic;
  uint64_t file;
  uint64_t owner;
  uint64_t version;
  uint64_t payload_bytes;
  uint32_t reserved;
  uint32_t crc32c;  // of the fields before it, then of the checksums after it
};
static_assert(sizeof(Header) == 48);

size_t PiecesOf(uint64_t payload_bytes) {
  return static_cast<size_t>((payload_bytes + kPieceBytes - 1) / kPieceBytes);
}

uint32_t* ChecksumsOf(const ExtentContents& contents) {
  return reinterpret_cast<uint32_t*>(contents.extent.data() + sizeof(Header));
}

uint32_t ChecksumOfPiece(const ExtentContents& contents, size_t piece) {
  const std::span<std::byte> payload = contents.payload();
  const uint64_t begin = piece * kPieceBytes;
  const uint64_t bytes = std::min<uint64_t>(kPieceBytes, payload.size() - begin);
  return shm::Crc32c(payload.data() + begin, bytes, 0);
}

uint32_t ChecksumOfHeader(const Header& header, const ExtentContents& contents) {
  const uint32_t fields = shm::Crc32c(&header, offsetof(Header, crc32c), 0);
  return shm::Crc32c(ChecksumsOf(contents), PiecesOf(contents.payload_bytes) * sizeof(uint32_t),
                     fields);
}

Header ReadHeader(const ExtentContents& contents) {
  Header header;
  std::memcpy(&header, contents.extent.data(), sizeof(header));
  return header;
}

}  // namespace

void ForEachInOrder(size_t count, const std::function<void(size_t)>& body) {
  for (size_t i = 0; i < count; ++i) body(i);
}

uint64_t ExtentHeaderBytes(uint64_t payload_bytes) {
  return base::RoundUp(sizeof(Header) + PiecesOf(payload_bytes) * sizeof(uint32_t), kBlockBytes);
}

void SealExtent(uint64_t file, const ExtentKey& key, const ExtentContents& contents,
                const ForEach& for_each) {
  std::ranges::fill(contents.extent.first(ExtentHeaderBytes(contents.payload_bytes)), std::byte{});
  uint32_t* const checksums = ChecksumsOf(contents);
  for_each(PiecesOf(contents.payload_bytes),
           [&](size_t piece) { checksums[piece] = ChecksumOfPiece(contents, piece); });
  Header header = {.magic = kMagic,
                   .file = file,
                   .owner = key.owner,
                   .version = key.version,
                   .payload_bytes = contents.payload_bytes,
                   .reserved = 0,
                   .crc32c = 0};
  header.crc32c = ChecksumOfHeader(header, contents);
  std::memcpy(contents.extent.data(), &header, sizeof(header));
}

absl::Status CheckExtent(uint64_t file, const ExtentKey& key, const ExtentContents& contents,
                         const ForEach& for_each) {
  if (IsBlank(contents)) return absl::DataLossError("nothing was ever written there");
  const Header header = ReadHeader(contents);
  if (header.magic != kMagic || header.payload_bytes != contents.payload_bytes ||
      header.crc32c != ChecksumOfHeader(header, contents)) {
    return absl::DataLossError("its header is damaged");
  }
  if (header.file != file) return absl::DataLossError("it belongs to another file");
  if (ExtentKey{header.owner, header.version} != key) {
    return absl::DataLossError(absl::StrCat("it holds version ", header.version, " of ",
                                            header.owner, ", not version ", key.version, " of ",
                                            key.owner, ": a write was lost"));
  }
  const uint32_t* const checksums = ChecksumsOf(contents);
  std::vector<uint8_t> damaged(PiecesOf(contents.payload_bytes));
  for_each(damaged.size(), [&](size_t piece) {
    damaged[piece] = checksums[piece] == ChecksumOfPiece(contents, piece) ? 0 : 1;
  });
  const auto first = std::ranges::find(damaged, 1);
  if (first == damaged.end()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("its bytes from ", static_cast<uint64_t>(first - damaged.begin()) * kPieceBytes,
                   " on were altered after they were written (their checksum differs)"));
}

bool IsBlank(const ExtentContents& contents) {
  const auto header = contents.extent.first(ExtentHeaderBytes(contents.payload_bytes));
  return std::ranges::all_of(header, [](std::byte byte) { return byte == std::byte{}; });
}

}  // namespace geminid::disk
