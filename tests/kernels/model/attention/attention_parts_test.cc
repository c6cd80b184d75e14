#include "kernels/model/attention/attention_parts.h"

#include <gtest/gtest.h>

namespace geminid::kernels {
namespace {

AttentionShape Shape(size_t batch, size_t sequence, size_t heads, size_t kv_heads,
                     size_t head_dim) {
  return {.batch = batch,
          .sequence = sequence,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .scale = 1};
}

void ExpectParts(const AttentionShape& shape, uint64_t batch, uint64_t kv_heads) {
  const AttentionParts parts = PartsOfAttention(shape);
  EXPECT_EQ(parts.batch, batch);
  EXPECT_EQ(parts.kv_heads, kv_heads);
  EXPECT_LE(parts.bytes, kAttentionPartBytesMax);
}

TEST(AttentionParts, WorkspaceThatFits_LeavesTheBatchWhole) {
  ExpectParts(Shape(8, 1024, 12, 12, 64), 8, 12);  // GPT-2: 192 MiB
}

TEST(AttentionParts, TooMuchWorkspace_CutsTheBatchIntoEqualParts) {
  ExpectParts(Shape(16, 1024, 12, 12, 64), 8, 12);
  ExpectParts(Shape(9, 1024, 24, 24, 64), 3, 24);
}

TEST(AttentionParts, SequenceThatTakesTooMuch_IsCutByHeadsThatShareKeys) {
  ExpectParts(Shape(2, 4096, 32, 8, 128), 1, 1);
  ExpectParts(Shape(2, 4096, 32, 32, 128), 1, 4);
  ExpectParts(Shape(1, 8192, 32, 32, 128), 1, 1);
}

TEST(AttentionParts, HeadThatTakesTooMuch_HasNoParts) {
  EXPECT_EQ(PartsOfAttention(Shape(1, 16384, 32, 32, 128)).batch, 0u);
}

// The bytes that cuDNN 9.19 reports for plans on an H100, asked without a GPU.
TEST(AttentionParts, ExpectedBytes_AreAtLeastThoseOfTheLibrary) {
  const auto expect = [](const AttentionShape& shape, uint64_t bytes) {
    const uint64_t expected = AttentionLibraryBytes(shape, shape.batch, shape.kv_heads);
    EXPECT_GE(expected, bytes);
    EXPECT_LE(expected, bytes + bytes / 2);
  };
  expect(Shape(8, 1024, 12, 12, 64), 201'326'848);
  expect(Shape(8, 1000, 12, 12, 64), 201'326'848);
  expect(Shape(1, 4096, 32, 8, 128), 1'140'850'944);
  expect(Shape(1, 2048, 32, 32, 128), 268'435'712);
  expect(Shape(2, 1024, 16, 4, 96), 79'692'032);
  expect(Shape(2, 64, 4, 2, 8), 147'712);
  expect(Shape(2, 37, 4, 4, 64), 131'328);
  expect(Shape(2, 16, 12, 12, 64), 393'472);
}

}  // namespace
}  // namespace geminid::kernels
