// The memory layout of rows of logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "geminid/zero.h"
#include "tests/training/models/dense_parameters.h"
#include "tests/training/models/tiny_models.h"
#include "training/nn/model_kernels.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;
using zero::DataType;

double Largest(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// Pads rows as on a GPU. Products with other strides may sum in another order, and the padding
// between rows starts as NaN.
void ExpectTheValuesOfDenseRows(const ModelConfig& config) {
  const ModelKernels apart = MakeHostKernels(/*row_alignment=*/64);
  const Batch batch = RandomBatch(config, {.sequences = 3, .sequence_length = 9}, 8);
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const Tiling tiling = {.tokens = 5};  // the last tile has fewer rows
    const auto dense = MakeTransformer(config, type, tiling);
    const auto padded = MakeTransformer(config, type, tiling, nullptr, apart);
    DenseParameters wanted(dense->parameters().specs, type, 1, kWorkspaceBytes);
    DenseParameters found(padded->parameters().specs, type, 1, kWorkspaceBytes);
    Stir(wanted);
    Stir(found);
    const auto loss = dense->TrainMicroBatch(wanted, batch.view(), 1.0F);
    const auto padded_loss = padded->TrainMicroBatch(found, batch.view(), 1.0F);
    ASSERT_TRUE(loss.ok()) << loss.status();
    ASSERT_TRUE(padded_loss.ok()) << padded_loss.status();
    const double rounding = type == DataType::kFloat32 ? 1e-5 : 1e-2;
    EXPECT_NEAR(*padded_loss, *loss, rounding * *loss);
    for (size_t p = 0; p < wanted.count(); ++p) {
      // This bias adds the same to all scores of a query, so its gradient is only rounding.
      if (dense->parameters().specs[p].name.ends_with("self.key.bias")) continue;
      EXPECT_THAT(found.gradient(p),
                  Pointwise(DoubleNear(rounding * Largest(wanted.gradient(p))), wanted.gradient(p)))
          << p;
    }
  }
}

TEST(TransformerLogits, RowsThatLieApart_HaveTheValuesOfDenseRows) {
  const ModelKernels apart = MakeHostKernels(/*row_alignment=*/64);
  EXPECT_EQ(apart.LogitStride(17), 64U);
  EXPECT_EQ(apart.LogitStride(64), 64U);
  EXPECT_EQ(HostKernels().LogitStride(17), 17U);
  ExpectTheValuesOfDenseRows(TinyGpt2());  // 17 words
  ExpectTheValuesOfDenseRows(TinyBert());  // with a bias
}

// The padding is so large that logits and their gradients are most of the workspace. The peak shows
// where the rows are; the values do not.
TEST(TransformerLogits, RowsThatLieFarApart_TakeTheirRoom) {
  constexpr size_t kApart = 1 << 16;
  const ModelConfig config = TinyGpt2();
  const ModelKernels far = MakeHostKernels(/*row_alignment=*/kApart);
  const MicroBatchShape shape = {.sequences = 3, .sequence_length = 9};
  const Batch batch = RandomBatch(config, shape, 8);
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const Tiling tiling = {.tokens = 5};
    const auto peak_with = [&](const ModelKernels& math) {
      const auto model = MakeTransformer(config, type, tiling, nullptr, math);
      DenseParameters parameters(model->parameters().specs, type, 1, kWorkspaceBytes);
      Stir(parameters);
      const auto loss = model->TrainMicroBatch(parameters, batch.view(), 1.0F);
      EXPECT_TRUE(loss.ok()) << loss.status();
      return parameters.workspace().peak_bytes();
    };
    const uint64_t more = peak_with(far) - peak_with(HostKernels());
    // fp32 logits of a tile, plus the gradients of all tokens or of a tile.
    EXPECT_GE(more, tiling.tokens * (kApart - 1024) * (sizeof(float) + zero::SizeOf(type)));
  }
}

}  // namespace
}  // namespace geminid::trainer
