#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/numeric/split_master/split_master.h"
#include "tests/base/long_tests.h"
#include "tests/kernels/numeric/split_master_reference.h"

namespace geminid::kernels {
namespace {

// Long tests try all patterns. Other tests try the first and the last of 16 blocks: each exponent
// with each lower half, and mantissas that carry into it.
TEST(SplitMasterExhaustive, AllPatterns_EqualReferenceAndJoinToTheSameBits) {
  constexpr uint64_t kAllPatterns = uint64_t{1} << 32;
  constexpr size_t kCount = 1 << 16;
  std::vector<uint32_t> bits(kCount);
  std::vector<float> master(kCount), joined(kCount);
  std::vector<BFloat16> weight(kCount), expected_weight(kCount);
  std::vector<int16_t> remainder(kCount), expected_remainder(kCount);
  for (uint64_t first = 0; first < kAllPatterns; first += kCount) {
    const uint64_t block = first / kCount % 16;
    if (!LongTests() && block != 0 && block != 15) continue;
    std::iota(bits.begin(), bits.end(), static_cast<uint32_t>(first));
    std::memcpy(master.data(), bits.data(), kCount * sizeof(float));
    reference::SplitMaster(master.data(), kCount, expected_weight.data(),
                           expected_remainder.data());
    ASSERT_EQ(SplitMaster(master.data(), kCount, weight.data(), remainder.data()), Status::kOk);
    ASSERT_EQ(weight, expected_weight) << first;
    ASSERT_EQ(remainder, expected_remainder) << first;
    ASSERT_EQ(JoinMaster(weight.data(), remainder.data(), kCount, joined.data()), Status::kOk);
    ASSERT_EQ(std::memcmp(joined.data(), bits.data(), kCount * sizeof(float)), 0) << first;
  }
}

}  // namespace
}  // namespace geminid::kernels
