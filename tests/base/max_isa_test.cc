#include "base/max_isa.h"

#include <gtest/gtest.h>

namespace geminid::base {
namespace {

TEST(MaxIsa, EveryName_IsItsLevel) {
  const std::pair<const char*, Isa> levels[] = {{"sse2", Isa::kSse2},
                                                {"avx2", Isa::kAvx2},
                                                {"avx512", Isa::kAvx512},
                                                {"avx512_bf16", Isa::kAvx512Bf16},
                                                {"amx", Isa::kAmx}};
  Isa last = Isa::kSse2;
  for (const auto& [name, isa] : levels) {
    ASSERT_TRUE(ParseMaxIsa(name).ok()) << name;
    EXPECT_EQ(*ParseMaxIsa(name), isa);
    EXPECT_STREQ(Name(isa), name);
    EXPECT_GE(isa, last) << name << " is not in order";
    last = isa;
  }
}

TEST(MaxIsa, WithoutTheVariable_LimitsNothing) {
  for (const char* const value : {static_cast<const char*>(nullptr), ""}) {
    ASSERT_TRUE(ParseMaxIsa(value).ok());
    EXPECT_EQ(*ParseMaxIsa(value), Isa::kAmx);
  }
}

TEST(MaxIsa, AnyOtherText_IsRefusedWithTheNames) {
  for (const char* const bad : {"avx", "AVX2", " avx2", "avx2 ", "avx512-bf16", "0"}) {
    const absl::Status status = ParseMaxIsa(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(status.message(), "GEMINID_MAX_ISA is '" + std::string(bad) +
                                    "'; it must be one of: sse2, avx2, avx512, avx512_bf16, amx");
  }
}

// With a wrong variable, test programs would compute without a limit: the tests would run at
// another level than the one that was asked for.
TEST(MaxIsa, OfTheseTests_IsALevel) { EXPECT_TRUE(MaxIsa().ok()) << MaxIsa().status(); }

}  // namespace
}  // namespace geminid::base
