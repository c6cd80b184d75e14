#include "kernels/crc32c/crc32c_reference.h"

#include <array>
#include <bit>
#include <cstring>

namespace geminid::kernels::reference {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kReflectedPolynomial = 0x82F63B78u;
constexpr size_t kSlices = 8;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

// tables[k][b] is the register after the byte b followed by k zero bytes.
constexpr Tables MakeTables() {
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1u) ? kReflectedPolynomial : 0u);
    }
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < kSlices; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xFFu];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint32_t reg = ~crc;
  for (; bytes >= kSlices; p += kSlices, bytes -= kSlices) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    word ^= reg;
    reg = 0;
    for (size_t i = 0; i < kSlices; ++i) {
      reg ^= kTables[kSlices - 1 - i][(word >> (8 * i)) & 0xFFu];
    }
  }
  for (; bytes != 0; ++p, --bytes) reg = (reg >> 8) ^ kTables[0][(reg ^ *p) & 0xFFu];
  return ~reg;
}

}  // namespace geminid::kernels::reference
