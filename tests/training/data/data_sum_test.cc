#include "training/data/data_sum.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "training/data/text.h"

namespace geminid::trainer {
namespace {

std::string SumOf(std::vector<uint8_t> bytes, uint64_t most = kSummedTokens) {
  const Text text(std::move(bytes));
  const absl::StatusOr<std::string> sum = SumOfData(text, most);
  EXPECT_TRUE(sum.ok()) << sum.status();
  return sum.value_or("");
}

// The sum is over the tokens as little-endian int32: "a" is 61 00 00 00.
TEST(SumOfData, IsTheCrcOfItsTokens) {
  EXPECT_EQ(SumOf({}), "0 bytes, CRC-32C 00000000");
  // The polynomial's check value (RFC 3720, B.4) is for 32 bytes of zeros, which are eight tokens
  // 0.
  EXPECT_EQ(SumOf(std::vector<uint8_t>(8, 0)), "8 bytes, CRC-32C 8a9136aa");
}

TEST(SumOfData, AnyTokenOfDataThatIsReadWhole_ChangesIt) {
  const std::vector<uint8_t> bytes(200'000, 7);
  const std::string before = SumOf(bytes);
  for (const size_t at : {size_t{0}, size_t{65'535}, size_t{65'536}, bytes.size() - 1}) {
    std::vector<uint8_t> other = bytes;
    other[at] ^= 1;
    EXPECT_NE(SumOf(other), before) << at;
  }
  EXPECT_NE(SumOf(std::vector<uint8_t>(199'999, 7)), before);
}

TEST(SumOfData, OfMoreThanIsRead_CountsTheFirstAndTheLastTokens) {
  const std::vector<uint8_t> bytes(1'000'000, 7);
  const uint64_t most = 200'000;
  const std::string before = SumOf(bytes, most);
  for (const auto& [at, counts] : {std::pair{size_t{0}, true}, std::pair{bytes.size() - 1, true},
                                   std::pair{bytes.size() / 4, false}}) {
    std::vector<uint8_t> other = bytes;
    other[at] ^= 1;
    EXPECT_EQ(SumOf(other, most) != before, counts) << at;
  }
}

}  // namespace
}  // namespace geminid::trainer
