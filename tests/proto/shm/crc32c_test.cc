#include "proto/shm/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace geminid::shm {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32c, PublishedVectors_Match) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43u);
}

TEST(Crc32c, AnyLengthAndCut_PortableAndFastFormsAgree) {
  std::mt19937_64 random(1);
  std::vector<unsigned char> data(257);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  for (size_t size = 0; size <= data.size(); ++size) {
    const uint32_t whole = Crc32cPortable(data.data(), size);
    EXPECT_EQ(Crc32c(data.data(), size), whole);
    const size_t cut = size == 0 ? 0 : random() % size;
    EXPECT_EQ(Crc32c(data.data() + cut, size - cut, Crc32c(data.data(), cut)), whole);
    EXPECT_EQ(Crc32cPortable(data.data() + cut, size - cut, Crc32cPortable(data.data(), cut)),
              whole);
  }
}

}  // namespace
}  // namespace geminid::shm
