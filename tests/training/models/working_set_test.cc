#include "training/models/working_set.h"

#include <gtest/gtest.h>

namespace geminid::trainer {
namespace {

// The largest operator is one expert beside its router, or the attention; never all experts.
TEST(WorkingSetBytes, OfExperts_IsThatOfOneBesideItsRouter) {
  const ModelConfig config = {.family = Family::kMixtral,
                              .layers = 1,
                              .hidden = 8,
                              .heads = 2,
                              .kv_heads = 2,
                              .intermediate = 32,
                              .context = 10,
                              .vocabulary = 16,
                              .experts = 6,
                              .experts_per_token = 2};
  const uint64_t chunk = 100, expert = 3 * 8 * 32, router = 6 * 8 + 8;
  EXPECT_EQ(WorkingSetBytes(MakeParameters(config), zero::DataType::kBFloat16, chunk),
            2 * 2 * (expert + router + 2 * chunk));
}

TEST(WorkingSetBytes, IsTwiceTheLargestOperatorWithItsChunks) {
  const ModelConfig config = {.family = Family::kGpt2,
                              .layers = 2,
                              .hidden = 8,
                              .heads = 2,
                              .kv_heads = 2,
                              .intermediate = 32,
                              .context = 10,
                              .vocabulary = 17};
  // The MLP has two matrices of 256, biases of 32 and 8, and a norm of 16.
  EXPECT_EQ(WorkingSetBytes(MakeParameters(config), zero::DataType::kFloat32, 100),
            2 * 4 * (2 * 256 + 40 + 16 + 2 * 100));
  // Norms with a type of their own share chunks: five norms of 16 in fp32.
  ModelConfig mixed = config;
  mixed.fp32_norms = true;
  EXPECT_EQ(WorkingSetBytes(MakeParameters(mixed), zero::DataType::kBFloat16, 100),
            2 * (2 * (2 * 256 + 40 + 2 * 100) + 4 * 5 * 16));
}

}  // namespace
}  // namespace geminid::trainer
