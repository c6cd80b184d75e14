// Where the rows of logits lie.
#include <gtest/gtest.h>

#include <cstdint>

#include "geminid/zero.h"
#include "tests/tools/trainer/dense_parameters.h"
#include "tests/tools/trainer/tiny_models.h"
#include "tools/trainer/model_kernels.h"
#include "tools/trainer/transformer.h"

namespace geminid::trainer {
namespace {

using zero::DataType;

// So far apart that the logits and their gradients are most of the workspace: it says where they
// lie, which values do not.
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
    // fp32 logits of a tile beside the gradients of all tokens, or of a tile.
    EXPECT_GE(more, tiling.tokens * (kApart - 1024) * (sizeof(float) + zero::SizeOf(type)));
  }
}

}  // namespace
}  // namespace geminid::trainer
