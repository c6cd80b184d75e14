#include "kernels/runtime/simd/isa.h"

#include <gtest/gtest.h>

#include <vector>

#include "hwy/targets.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/simd/highway_limit.h"
#include "tests/kernels/model/model_kernels.h"

namespace geminid::kernels {
namespace {

using base::Isa;

Isa Limit() { return base::MaxIsa().value_or(Isa::kAmx); }

TEST(HighwayTargetsAbove, EachLevel_LeavesItsOwnAndThoseBelow) {
  for (const Isa isa : {Isa::kSse2, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    const int64_t above = HighwayTargetsAbove(isa);
    EXPECT_EQ(above & (HWY_EMU128 | HWY_SCALAR), 0) << Name(isa);
    EXPECT_EQ((above & HWY_AVX2) != 0, isa < Isa::kAvx2) << Name(isa);
    EXPECT_EQ((above & HWY_AVX3) != 0, isa < Isa::kAvx512) << Name(isa);
    EXPECT_EQ((above & HWY_AVX3_DL) != 0, isa < Isa::kAvx512Bf16) << Name(isa);
  }
}

// The suites run at several levels, and so does this test. oneDNN accepts a limit only before its
// first use, which may be a product.
TEST(Isa, InUseAfterAProduct_IsWithinTheLimit) {
  const std::vector<float> ones(64, 1.0F);
  std::vector<float> product(64);
  const MatmulShape shape = {.m = 8, .n = 8, .k = 8};
  size_t bytes = 0;
  ASSERT_EQ((MatmulWorkspaceBytes<float, float>(shape, &bytes)), Status::kOk);
  Workspace workspace(bytes);
  ASSERT_EQ((Matmul<float, float>(shape, ones.data(), ones.data(), nullptr, product.data(),
                                  workspace.data(), workspace.bytes())),
            Status::kOk);
  EXPECT_EQ(product, std::vector<float>(64, 8.0F));
  EXPECT_LE(IsaInUse(), Limit()) << Name(IsaInUse());
  EXPECT_EQ(hwy::SupportedTargets() & HighwayTargetsAbove(Limit()), 0);
  EXPECT_EQ(HasNativeBFloat16(), IsaInUse() >= Isa::kAvx512Bf16);
}

#if HWY_ARCH_X86
TEST(Isa, HighwayAndOneDnn_AreHeldToTheSame) {
  EXPECT_EQ((hwy::SupportedTargets() & HWY_AVX2) != 0, IsaInUse() >= Isa::kAvx2);
  EXPECT_EQ((hwy::SupportedTargets() & HWY_AVX3) != 0, IsaInUse() >= Isa::kAvx512);
}
#endif

// Only LevelOfFailures.Failure_NamesItsLevelAndTheCommandThatRunsItAgain runs this.
TEST(LevelOfFailures, DISABLED_Fails) { FAIL() << "as it should"; }

}  // namespace
}  // namespace geminid::kernels
