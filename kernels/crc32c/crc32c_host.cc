#include <cstring>

#include "kernels/crc32c/crc32c.h"
#include "kernels/crc32c/crc32c_reference.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace geminid::kernels {

#if defined(__x86_64__)
namespace {

constexpr uint32_t kReflectedPolynomial = 0x82F63B78u;
// The instruction takes 3 cycles and one can start each cycle, so three streams run at once. Long
// enough that joining them (0.1 us) is a few percent, short enough for most chunks' records.
constexpr size_t kStreamBytes = 8192;

// a x b modulo the polynomial, bit 31 being the coefficient of x^0.
constexpr uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b >> 1) ^ ((b & 1u) ? kReflectedPolynomial : 0u);
  }
  return product;
}

// x^(8 bytes): multiplying a register by it is feeding it so many zero bytes.
constexpr uint32_t ZeroBytesFactor(size_t bytes) {
  uint32_t factor = 0x80000000u;  // x^0
  uint32_t power = 0x00800000u;   // x^8
  for (; bytes != 0; bytes >>= 1) {
    if (bytes & 1) factor = Multiply(factor, power);
    power = Multiply(power, power);
  }
  return factor;
}

constexpr uint32_t kSkipStream = ZeroBytesFactor(kStreamBytes);

inline uint64_t LoadWord(const unsigned char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) uint32_t ExtendByInstruction(uint32_t crc, const unsigned char* p,
                                                               size_t bytes) {
  uint64_t reg = static_cast<uint32_t>(~crc);
  for (; bytes >= 3 * kStreamBytes; p += 3 * kStreamBytes, bytes -= 3 * kStreamBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kStreamBytes; i += sizeof(uint64_t)) {
      reg = _mm_crc32_u64(reg, LoadWord(p + i));
      second = _mm_crc32_u64(second, LoadWord(p + kStreamBytes + i));
      third = _mm_crc32_u64(third, LoadWord(p + 2 * kStreamBytes + i));
    }
    reg = Multiply(kSkipStream, static_cast<uint32_t>(reg)) ^ second;
    reg = Multiply(kSkipStream, static_cast<uint32_t>(reg)) ^ third;
  }
  for (; bytes >= sizeof(uint64_t); p += sizeof(uint64_t), bytes -= sizeof(uint64_t)) {
    reg = _mm_crc32_u64(reg, LoadWord(p));
  }
  for (; bytes != 0; ++p, --bytes) reg = _mm_crc32_u8(static_cast<uint32_t>(reg), *p);
  return ~static_cast<uint32_t>(reg);
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t bytes) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  return has_instruction ? ExtendByInstruction(crc, static_cast<const unsigned char*>(data), bytes)
                         : reference::ExtendCrc32c(crc, data, bytes);
}

#else

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t bytes) {
  return reference::ExtendCrc32c(crc, data, bytes);
}

#endif  // defined(__x86_64__)

}  // namespace geminid::kernels
