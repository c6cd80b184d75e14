#include "kernels/crc32c/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/crc32c/crc32c_reference.h"

namespace geminid::kernels {
namespace {

// Bit by bit, from the definition.
uint32_t BitwiseCrc32c(const std::vector<uint8_t>& data) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const uint8_t byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

std::vector<uint8_t> RandomBytes(size_t count) {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// RFC 3720, appendix B.4, and the check value of the CRC catalogues.
TEST(Crc32c, StandardVectors) {
  std::vector<uint8_t> bytes(32, 0x00);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x8A9136AAu);
  bytes.assign(32, 0xFF);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x62A8AB43u);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x46DD794Eu);
  std::reverse(bytes.begin(), bytes.end());
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x113FDB5Cu);
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(reference::ExtendCrc32c(0, "123456789", 9), 0xE3069283u);
  EXPECT_EQ(Crc32c(nullptr, 0), 0u);
}

TEST(Crc32c, EveryShortLengthAndAlignment_EqualsTheDefinition) {
  const std::vector<uint8_t> bytes = RandomBytes(200);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t count = 0; begin + count <= bytes.size(); ++count) {
      const uint8_t* p = bytes.data() + begin;
      const uint32_t expected = BitwiseCrc32c({p, p + count});
      ASSERT_EQ(Crc32c(p, count), expected) << begin << " " << count;
      ASSERT_EQ(reference::ExtendCrc32c(0, p, count), expected) << begin << " " << count;
    }
  }
}

// Around one, two and three rounds of the three interleaved streams.
TEST(Crc32c, LongLengths_EqualTheDefinition) {
  constexpr size_t kRound = 3 * 8192;
  const std::vector<uint8_t> bytes = RandomBytes(3 * kRound + 50);
  for (const size_t rounds : {1, 2, 3}) {
    for (const int offset : {-9, -1, 0, 1, 8, 41}) {
      const size_t count = rounds * kRound + static_cast<size_t>(offset);
      const uint32_t expected = BitwiseCrc32c({bytes.data() + 1, bytes.data() + 1 + count});
      ASSERT_EQ(Crc32c(bytes.data() + 1, count), expected) << count;
      ASSERT_EQ(reference::ExtendCrc32c(0, bytes.data() + 1, count), expected) << count;
    }
  }
}

TEST(Crc32c, Extended_EqualsTheCrcOfTheWhole) {
  const std::vector<uint8_t> bytes = RandomBytes(100'000);
  const uint32_t whole = Crc32c(bytes.data(), bytes.size());
  for (const size_t cut : {0, 1, 7, 24'576, 50'001, 99'999, 100'000}) {
    const uint32_t first = Crc32c(bytes.data(), cut);
    EXPECT_EQ(ExtendCrc32c(first, bytes.data() + cut, bytes.size() - cut), whole) << cut;
  }
}

TEST(Crc32c, AnyFlippedBit_ChangesTheCrc) {
  std::vector<uint8_t> bytes = RandomBytes(64);
  const uint32_t before = Crc32c(bytes.data(), bytes.size());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_NE(Crc32c(bytes.data(), bytes.size()), before) << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
}

}  // namespace
}  // namespace geminid::kernels
