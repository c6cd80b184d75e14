#include "proto/shm/crc32c.h"

#include <array>
#include <cstring>

#include "base/max_isa.h"

namespace geminid::shm {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? kPolynomial : 0);
    table[byte] = value;
  }
  return table;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(const void* data, size_t size,
                                                       uint32_t previous) {
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  uint64_t crc = static_cast<uint32_t>(~previous);
  for (; size >= 8; size -= 8, bytes += 8) {
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  uint32_t tail = static_cast<uint32_t>(crc);
  for (; size > 0; --size, ++bytes) tail = __builtin_ia32_crc32qi(tail, *bytes);
  return ~tail;
}
#endif

}  // namespace

uint32_t Crc32cPortable(const void* data, size_t size, uint32_t previous) {
  static constexpr std::array<uint32_t, 256> kTable = MakeTable();
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  uint32_t crc = ~previous;
  for (; size > 0; --size, ++bytes) crc = (crc >> 8) ^ kTable[(crc ^ *bytes) & 0xff];
  return ~crc;
}

uint32_t Crc32c(const void* data, size_t size, uint32_t previous) {
#if defined(__x86_64__)
  static const bool use_sse42 = __builtin_cpu_supports("sse4.2") &&
                                base::MaxIsa().value_or(base::Isa::kAmx) > base::Isa::kSse2;
  if (use_sse42) return Crc32cSse42(data, size, previous);
#endif
  return Crc32cPortable(data, size, previous);
}

}  // namespace geminid::shm
