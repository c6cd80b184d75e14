// Token, position and rotary embeddings.
#include "kernels/model/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/model/rotary/rotary.h"
#include "tests/kernels/model/model_kernels.h"

namespace geminid::kernels {
namespace {

template <typename T>
class Embedding : public ::testing::Test {};
TYPED_TEST_SUITE(Embedding, ElementTypes);

const std::vector<int32_t> kIds = {4, 0, 4, 9, 4, 1, 9, 4};
constexpr size_t kHidden = 21;
constexpr size_t kVocabulary = 10;

EmbeddingShape Whole() {
  return {.tokens = kIds.size(),
          .hidden = kHidden,
          .vocabulary = kVocabulary,
          .first_row = 0,
          .rows = kVocabulary};
}

TYPED_TEST(Embedding, Forward_WithPositions_IsTheSumRoundedOnce) {
  std::mt19937 random(51);
  const auto table = RandomTensor<TypeParam>(random, kVocabulary * kHidden);
  const auto positions = RandomTensor<TypeParam>(random, 4 * kHidden);
  Doubles want(kIds.size() * kHidden);
  Doubles bare(want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t t = i / kHidden;
    bare[i] = ToDouble(table.data()[static_cast<size_t>(kIds[t]) * kHidden + i % kHidden]);
    want[i] = bare[i] + ToDouble(positions.data()[t % 4 * kHidden + i % kHidden]);
  }
  GuardedArray<TypeParam> y(want.size(), 1);
  ASSERT_EQ(EmbeddingForward(Whole(), kIds.data(), table.data(), positions.data(), 4, y.data()),
            Status::kOk);
  ExpectClose(y, want, 0);
  ASSERT_EQ(EmbeddingForward<TypeParam>(Whole(), kIds.data(), table.data(), nullptr, 0, y.data()),
            Status::kOk);
  EXPECT_EQ(ToDoubles(y), bare);
}

TYPED_TEST(Embedding, Forward_SplitVocabulary_PartsSumToTheWhole) {
  std::mt19937 random(52);
  const auto table = RandomTensor<TypeParam>(random, kVocabulary * kHidden);
  GuardedArray<TypeParam> whole(kIds.size() * kHidden, 0);
  ASSERT_EQ(
      EmbeddingForward<TypeParam>(Whole(), kIds.data(), table.data(), nullptr, 0, whole.data()),
      Status::kOk);
  Doubles sum(whole.size());
  for (const size_t first : {0, 3, 7}) {
    EmbeddingShape part = Whole();
    part.first_row = first;
    part.rows = first == 0 ? 3 : (first == 3 ? 4 : 3);
    GuardedArray<TypeParam> y(whole.size(), 0);
    ASSERT_EQ(EmbeddingForward<TypeParam>(part, kIds.data(), table.data() + first * kHidden,
                                          nullptr, 0, y.data()),
              Status::kOk);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += ToDouble(y[i]);
  }
  EXPECT_EQ(sum, ToDoubles(whole));
}

TYPED_TEST(Embedding, Backward_RepeatedIds_SumInTokenOrder) {
  std::mt19937 random(53);
  const auto dy = RandomTensor<TypeParam>(random, kIds.size() * kHidden);
  for (const bool accumulate : {false, true}) {
    for (const size_t first : {0, 4}) {
      SCOPED_TRACE(testing::Message() << "from row " << first << ", accumulate " << accumulate);
      EmbeddingShape shape = Whole();
      shape.first_row = first;
      shape.rows = kVocabulary - first;
      auto dtable = RandomTensor<TypeParam>(random, shape.rows * kHidden);
      std::vector<TypeParam> want(dtable.size());
      for (size_t i = 0; i < dtable.size(); ++i) {
        float sum = 0;
        for (size_t t = 0; t < kIds.size(); ++t) {
          if (static_cast<size_t>(kIds[t]) != first + i / kHidden) continue;
          sum += static_cast<float>(ToDouble(dy.data()[t * kHidden + i % kHidden]));
        }
        if (accumulate) sum += static_cast<float>(ToDouble(dtable[i]));
        want[i] = ToElement<TypeParam>(sum);
      }
      Workspace workspace(EmbeddingWorkspaceBytes(shape));
      ASSERT_EQ(EmbeddingBackward(shape, kIds.data(), dy.data(), dtable.data(), accumulate,
                                  workspace.data(), workspace.bytes()),
                Status::kOk);
      EXPECT_TRUE(SameBits(dtable.data(), want.data(), want.size()));
      EXPECT_TRUE(dtable.GuardsIntact());
      EXPECT_TRUE(workspace.array.GuardsIntact());
    }
  }
}

TYPED_TEST(Embedding, Backward_MoreTokensThanAChunk_SumsChunksInOrder) {
  constexpr size_t kTokens = 2 * kEmbeddingChunkTokens + 1;
  std::mt19937 random(58);
  // Tokens of row 0 lie between those of row 1, because chunks count from a row's first token.
  std::vector<int32_t> ids(kTokens + 3, 1);
  ids[0] = ids[5] = ids[70] = 0;
  const auto dy = RandomTensor<TypeParam>(random, ids.size() * kHidden);
  const EmbeddingShape shape = {
      .tokens = ids.size(), .hidden = kHidden, .vocabulary = 2, .first_row = 0, .rows = 2};
  GuardedArray<TypeParam> dtable(2 * kHidden, 0);
  Workspace workspace(EmbeddingWorkspaceBytes(shape));
  ASSERT_EQ(EmbeddingBackward(shape, ids.data(), dy.data(), dtable.data(), /*accumulate=*/false,
                              workspace.data(), workspace.bytes()),
            Status::kOk);
  std::vector<TypeParam> want(2 * kHidden);
  for (size_t i = 0; i < want.size(); ++i) {
    float sum = 0, chunk = 0;
    size_t found = 0;
    for (size_t t = 0; t < ids.size(); ++t) {
      if (static_cast<size_t>(ids[t]) != i / kHidden) continue;
      chunk += static_cast<float>(ToDouble(dy.data()[t * kHidden + i % kHidden]));
      if (++found % kEmbeddingChunkTokens != 0) continue;
      sum += chunk;
      chunk = 0;
    }
    want[i] = ToElement<TypeParam>(sum + chunk);
  }
  EXPECT_TRUE(SameBits(dtable.data(), want.data(), want.size()));
}

TYPED_TEST(Embedding, PositionBackward_SumsOverTheBatch) {
  std::mt19937 random(54);
  const auto dy = RandomTensor<TypeParam>(random, 3 * 5 * kHidden);
  Doubles want(5 * kHidden);
  for (size_t i = 0; i < dy.size(); ++i) want[i % want.size()] += ToDouble(dy.data()[i]);
  GuardedArray<TypeParam> got(want.size(), 0);
  ASSERT_EQ(PositionEmbeddingBackward(3, 5, kHidden, dy.data(), got.data(), false), Status::kOk);
  ExpectClose(got, want, 3e-7);
  const Doubles once = ToDoubles(got);
  ASSERT_EQ(PositionEmbeddingBackward(3, 5, kHidden, dy.data(), got.data(), true), Status::kOk);
  for (size_t i = 0; i < want.size(); ++i) want[i] += once[i];
  ExpectClose(got, want, 3e-7);
}

TEST(Embedding, BadIdsAndShapes_AreRefusedUntouched) {
  GuardedArray<float> table(kVocabulary * kHidden, 0);
  auto y = FromDoubles<float>(Doubles(kIds.size() * kHidden, 7.0));
  const auto forward = [&](const EmbeddingShape& shape, const std::vector<int32_t>& ids) {
    return EmbeddingForward<float>(shape, ids.data(), table.data(), nullptr, 0, y.data());
  };
  for (const int32_t bad : {-1, static_cast<int32_t>(kVocabulary)}) {
    auto ids = kIds;
    ids.back() = bad;
    EXPECT_EQ(forward(Whole(), ids), Status::kInvalidParameter);
  }
  EmbeddingShape shape = Whole();
  shape.first_row = 1;
  EXPECT_EQ(forward(shape, kIds), Status::kInvalidShape);
  shape = Whole();
  shape.hidden = 0;
  EXPECT_EQ(forward(shape, kIds), Status::kInvalidShape);
  EXPECT_EQ(ToDoubles(y), Doubles(y.size(), 7.0));
}

TYPED_TEST(Embedding, RotaryForward_MatchesTheFormula) {
  std::mt19937 random(55);
  const RotaryShape shape = {.batch = 2,
                             .sequence = 7,
                             .heads = 3,
                             .head_dim = 22,
                             .token_stride = 70,
                             .first_position = 900};
  GuardedArray<float> cos(907 * 11, 0);
  GuardedArray<float> sin(907 * 11, 0);
  ASSERT_EQ(RotaryTable(907, 22, 10000.0, cos.data(), sin.data()), Status::kOk);
  auto x = RandomTensor<TypeParam>(random, 14 * 70);
  Doubles want = ToDoubles(x);
  for (size_t token = 0; token < 14; ++token) {
    for (size_t h = 0; h < 3; ++h) {
      for (size_t i = 0; i < 11; ++i) {
        const double angle = static_cast<double>(900 + token % 7) *
                             std::pow(10000.0, -2.0 * static_cast<double>(i) / 22.0);
        double& low = want[token * 70 + h * 22 + i];
        double& high = want[token * 70 + h * 22 + i + 11];
        const double saved = low;
        low = low * std::cos(angle) - high * std::sin(angle);
        high = high * std::cos(angle) + saved * std::sin(angle);
      }
    }
  }
  ASSERT_EQ(RotaryForward(shape, cos.data(), sin.data(), x.data()), Status::kOk);
  ExpectClose(x, want, 3e-7);
}

// GPT-NeoX turns part of each head. The part that is not turned keeps its bits.
TYPED_TEST(Embedding, RotaryForward_OfAPartOfEachHead_LeavesTheRest) {
  std::mt19937 random(57);
  constexpr size_t kTokens = 6, kHeads = 3, kTurned = 6, kWidth = 17;
  GuardedArray<float> cos(kTokens * kTurned / 2, 0);
  GuardedArray<float> sin(kTokens * kTurned / 2, 0);
  ASSERT_EQ(RotaryTable(kTokens, kTurned, 10000.0, cos.data(), sin.data()), Status::kOk);
  auto x = RandomTensor<TypeParam>(random, kTokens * kHeads * kWidth);
  const Doubles before = ToDoubles(x);
  for (const bool forward : {true, false}) {
    const RotaryShape shape = {.batch = 1,
                               .sequence = kTokens,
                               .heads = kHeads,
                               .head_dim = kTurned,
                               .token_stride = kHeads * kWidth,
                               .head_stride = kWidth};
    const auto turn = forward ? RotaryForward<TypeParam> : RotaryBackward<TypeParam>;
    ASSERT_EQ(turn(shape, cos.data(), sin.data(), x.data()), Status::kOk);
    for (size_t i = 0; i < before.size(); ++i) {
      if (i % kWidth >= kTurned) {
        ASSERT_EQ(ToDouble(x.data()[i]), before[i]) << i;
      }
    }
    if (!forward) break;
    for (size_t head = 0; head < kTokens * kHeads; ++head) {  // alone, like a dense head
      auto alone = FromDoubles<TypeParam>({before.begin() + static_cast<ptrdiff_t>(head * kWidth),
                                           before.begin() + static_cast<ptrdiff_t>(head * kWidth) +
                                               static_cast<ptrdiff_t>(kTurned)});
      const RotaryShape dense = {.batch = 1,
                                 .sequence = 1,
                                 .heads = 1,
                                 .head_dim = kTurned,
                                 .token_stride = kTurned,
                                 .first_position = head / kHeads};
      ASSERT_EQ(RotaryForward(dense, cos.data(), sin.data(), alone.data()), Status::kOk);
      EXPECT_TRUE(SameBits(alone.data(), x.data() + head * kWidth, kTurned)) << head;
    }
  }
  EXPECT_EQ(RotaryForward({.batch = 1,
                           .sequence = 1,
                           .heads = 1,
                           .head_dim = 6,
                           .token_stride = 6,
                           .head_stride = 4},
                          cos.data(), sin.data(), x.data()),
            Status::kInvalidShape);
}

TYPED_TEST(Embedding, RotaryBackward_IsTheTransposeOfForward) {
  // <dy, R x> = <R^T dy, x> for every dy and x.
  std::mt19937 random(56);
  const RotaryShape shape = {
      .batch = 1, .sequence = 9, .heads = 2, .head_dim = 32, .token_stride = 64};
  GuardedArray<float> cos(9 * 16, 0);
  GuardedArray<float> sin(9 * 16, 0);
  ASSERT_EQ(RotaryTable(9, 32, 500000.0, cos.data(), sin.data()), Status::kOk);
  auto x = RandomTensor<TypeParam>(random, 9 * 64);
  auto dy = RandomTensor<TypeParam>(random, 9 * 64);
  const Doubles x_before = ToDoubles(x);
  const Doubles dy_before = ToDoubles(dy);
  ASSERT_EQ(RotaryForward(shape, cos.data(), sin.data(), x.data()), Status::kOk);
  ASSERT_EQ(RotaryBackward(shape, cos.data(), sin.data(), dy.data()), Status::kOk);
  const double norm = std::sqrt(Dot(x_before, x_before) * Dot(dy_before, dy_before));
  EXPECT_NEAR(Dot(dy_before, ToDoubles(x)), Dot(ToDoubles(dy), x_before),
              2 * RoundingOf<TypeParam>() * norm);
}

TEST(Embedding, RotaryTableOfAngles_HasThemAndTheLength) {
  const std::vector<double> angles = {1.0, 0.3, 0.01};
  GuardedArray<float> cos(5 * 3, 0);
  GuardedArray<float> sin(5 * 3, 0);
  ASSERT_EQ(RotaryTable(5, angles, 1.25, cos.data(), sin.data()), Status::kOk);
  for (size_t p = 0; p < 5; ++p) {
    for (size_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(p) * angles[i];
      EXPECT_EQ(cos.data()[p * 3 + i], static_cast<float>(1.25 * std::cos(angle)));
      EXPECT_EQ(sin.data()[p * 3 + i], static_cast<float>(1.25 * std::sin(angle)));
    }
  }
  EXPECT_EQ(RotaryTable(5, std::span<const double>{}, 1, cos.data(), sin.data()),
            Status::kInvalidShape);
  EXPECT_EQ(RotaryTable(5, angles, 0, cos.data(), sin.data()), Status::kInvalidParameter);
  EXPECT_EQ(RotaryTable(5, std::vector<double>{NAN}, 1, cos.data(), sin.data()),
            Status::kInvalidParameter);
}

TEST(Embedding, RotaryBadArguments_AreRefused) {
  GuardedArray<float> x(64, 0);
  GuardedArray<float> table(64, 0);
  EXPECT_EQ(RotaryTable(2, 7, 10000.0, table.data(), table.data() + 32), Status::kInvalidShape);
  EXPECT_EQ(RotaryTable(2, 8, -1.0, table.data(), table.data() + 32), Status::kInvalidParameter);
  EXPECT_EQ(RotaryTable(2, 8, 10000.0, table.data(), table.data() + 4), Status::kOverlap);
  EXPECT_EQ(RotaryForward({.batch = 1, .sequence = 1, .heads = 2, .head_dim = 8, .token_stride = 8},
                          table.data(), table.data(), x.data()),
            Status::kInvalidShape);
}

}  // namespace
}  // namespace geminid::kernels
