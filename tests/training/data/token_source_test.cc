#include "training/data/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "training/data/text.h"

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Text Counting(size_t bytes) {
  std::vector<uint8_t> text(bytes);
  std::iota(text.begin(), text.end(), uint8_t{0});
  return Text(std::move(text));
}

TEST(FirstDifference, OfTwoListings_NamesTheFile) {
  const DataListing was = {.files = {{"a", 2}, {"c", 3}}, .left_out = {}};
  EXPECT_EQ(FirstDifference(was, was), "");
  EXPECT_EQ(FirstDifference(was, {.files = {{"a", 2}, {"c", 4}}, .left_out = {}}),
            "'c' has 4 bytes and had 3");
  EXPECT_EQ(FirstDifference(was, {.files = {{"a", 2}, {"b", 1}, {"c", 3}}, .left_out = {}}),
            "'b' is new");
  EXPECT_EQ(FirstDifference(was, {.files = {{"c", 3}}, .left_out = {}}), "'a' is no longer there");
}

TEST(CheckLength, OfATextWithoutANextByte_IsRefused) {
  EXPECT_TRUE(CheckLength(TokenRange::All(Counting(17)), 16).ok());
  const absl::Status refused = CheckLength(TokenRange::All(Counting(16)), 16);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the data has 16 bytes, but one sequence takes 17 (the context and the "
                        "byte after it); give --context 15 or less, or more data"));
}

TEST(AppendSequence, WithinARange_CountsFromItsStart) {
  const Text text = Counting(100);
  std::vector<int32_t> tokens = {7}, targets = {8};
  ASSERT_TRUE(AppendSequence({&text, 40, 10}, 2, 3, &tokens, &targets).ok());
  EXPECT_THAT(tokens, ElementsAre(7, 42, 43, 44));
  EXPECT_THAT(targets, ElementsAre(8, 43, 44, 45));
}

TEST(SplitTokens, ByAShare_HoldsOutTheEnd) {
  const Text text = Counting(200);
  const auto split = SplitTokens(text, 0.25, 16);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->training.first, 0u);
  EXPECT_EQ(split->training.tokens, 150u);
  EXPECT_EQ(split->held_out.first, 150u);
  EXPECT_EQ(split->held_out.tokens, 50u);
  EXPECT_EQ(SplitTokens(text, 0, 16)->held_out.tokens, 0u);
}

TEST(SplitTokens, WithAPartThatHoldsNoSequence_SaysWhich) {
  const Text text = Counting(200);
  EXPECT_THAT(std::string(SplitTokens(text, 0.05, 16).status().message()),
              HasSubstr("leaves validation 10 bytes, but one sequence takes 17"));
  EXPECT_THAT(std::string(SplitTokens(text, 0.95, 16).status().message()),
              HasSubstr("leaves training 10 bytes, but one sequence takes 17"));
  EXPECT_THAT(std::string(SplitTokens(text, 0.95, 16).status().message()),
              HasSubstr("; give --context 9 or less, or more data, or a smaller share"));
  EXPECT_THAT(std::string(SplitTokens(text, 1, 16).status().message()),
              HasSubstr("; give more data, or a smaller share"));
}

}  // namespace
}  // namespace geminid::trainer
