// The judgement of the products' rates. The page has the same products.
#include "tools/kernel-check/timed_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "kernels/runtime/common/bfloat16.h"

namespace geminid::kernel_check {
namespace {

using ::testing::HasSubstr;

ProductTiming Judged(const std::vector<double>& library, const std::vector<double>& bare_loop,
                     bool judged = true) {
  ProductTiming timing;
  JudgeRounds(library, bare_loop, judged, &timing);
  return timing;
}

TEST(JudgeRounds, MedianOfTheRoundsRatios_Decides) {
  // One of the rounds was disturbed. The ratios are 0.96, 0.2 and 0.97.
  const ProductTiming good = Judged({96, 20, 194}, {100, 100, 200});
  EXPECT_TRUE(good.passed) << good.detail;
  EXPECT_DOUBLE_EQ(good.of_bare_loop, 0.96);
  EXPECT_DOUBLE_EQ(good.library, 96);
  EXPECT_DOUBLE_EQ(good.bare_loop, 100);
}

TEST(JudgeRounds, LibraryJustAtTheTarget_PassesAndJustBelow_Fails) {
  EXPECT_TRUE(Judged({95}, {100}).passed);
  const ProductTiming slow = Judged({94.9}, {100});
  EXPECT_FALSE(slow.passed);
  EXPECT_THAT(slow.detail, HasSubstr("0.949 of a bare loop"));
}

TEST(JudgeRounds, ProductThatWasCut_IsRatedAndNotJudged) {
  const ProductTiming cut = Judged({50}, {100}, /*judged=*/false);
  EXPECT_TRUE(cut.passed);
  EXPECT_FALSE(cut.judged);
  EXPECT_DOUBLE_EQ(cut.of_bare_loop, 0.5);
  EXPECT_THAT(ProductLine(cut), HasSubstr("not judged"));
}

TEST(JudgeRounds, RoundWithoutARate_Fails) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<double>& rounds :
       std::vector<std::vector<double>>{{}, {100, 0}, {nan, 100}, {100}}) {
    const ProductTiming timing = Judged(rounds, {100, 100}, /*judged=*/false);
    EXPECT_FALSE(timing.passed);
    EXPECT_EQ(timing.detail, "no rate");
  }
}

TEST(ProductDifference, ValuesWithinTheTolerance_AreTheSame) {
  const std::vector<float> own = {100, -3, 0};
  EXPECT_EQ(ProductDifference<float>({100.9F, -3.9F, 0.9F}, own, 0.01), "");
  EXPECT_THAT(ProductDifference<float>({100, -3, 1.1F}, own, 0.01), HasSubstr("c[2]"));
}

TEST(ProductDifference, PlaceThatWasNotWritten_IsFound) {
  const auto one = kernels::BFloat16::FromFloat(1);
  const kernels::BFloat16 unwritten{0xFFFF};
  EXPECT_THAT(ProductDifference<kernels::BFloat16>({one, unwritten}, {one, one}, 0.01),
              HasSubstr("c[1]"));
}

TEST(ProductJson, OfAFailure_HasItsWordsAndRates) {
  ProductTiming timing = Judged({50}, {100});
  timing.product = TimedProducts(0)[0];
  timing.own_kernel = 5;
  EXPECT_EQ(ProductJson(timing),
            "{\"id\": \"P1\", \"name\": \"P1 product by cuBLASLt, bf16, 4096 x 4096 x 4096\", "
            "\"library_flops\": 50, \"bare_loop_flops\": 100, \"own_kernel_flops\": 5, "
            "\"of_bare_loop\": 0.5, \"judged\": true, \"passed\": false, "
            "\"detail\": \"0.500 of a bare loop, less than 0.95\"}");
}

TEST(TimedProducts, Cut_AreSmallAndNotSquare) {
  for (const TimedProduct& product : TimedProducts(40)) {
    EXPECT_EQ(product.shape.m, 40u);
    EXPECT_EQ(product.shape.n, 30u);
    EXPECT_EQ(product.shape.k, 20u);
  }
  for (const TimedProduct& product : TimedProducts(1)) EXPECT_EQ(product.operations(), 2);
}

// The page's rows whose id begins with this letter.
std::set<std::string> RowsOfThePage(char letter) {
  std::ifstream file(GEMINID_SOURCE_DIR "/docs/gpu-verification.md");
  EXPECT_TRUE(file.is_open());
  std::set<std::string> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(std::string("| ") + letter, 0) != 0) continue;
    rows.insert(line.substr(2, line.find(' ', 2) - 2));
  }
  return rows;
}

TEST(TimedProducts, AndThePage_KnowTheSameOnes) {
  std::set<std::string> ids;
  for (const TimedProduct& product : TimedProducts(0)) ids.insert(product.id);
  EXPECT_EQ(ids, RowsOfThePage('P'));
}

}  // namespace
}  // namespace geminid::kernel_check
