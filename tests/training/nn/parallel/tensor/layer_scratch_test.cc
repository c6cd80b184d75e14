// Layers take counted memory as the closed forms say, and free all of it. If one rank's request is
// refused, that rank says so and the others do not wait for it.
#include "training/nn/parallel/tensor/layer_scratch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tests/training/nn/parallel/counting_memory.h"
#include "tests/training/nn/parallel/tensor/grids.h"
#include "tests/training/nn/parallel/watched_heap.h"

namespace geminid::collectives {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using Floats = std::vector<float>;

constexpr size_t kCutSequences = 12, kCutLength = 5, kCutTokens = kCutSequences * kCutLength;
constexpr size_t kCutHidden = 72, kCutInner = 144, kCutHeads = 12, kCutWords = 37;

// The largest heap block that a call allocated on this thread. Products have been planned before.
thread_local size_t taken_from_heap = 0;
absl::Status Watched(absl::FunctionRef<absl::Status()> call) {
  WatchHeap();
  const absl::Status status = call();
  taken_from_heap = LargestPieceOfHeap();
  return status;
}

// One layer on one rank, with its arguments.
struct LayerOnRank {
  std::function<absl::Status()> forward, backward;
  ScratchBytes expected;
};

struct LayerCase {
  const char* name;
  std::function<LayerOnRank(TensorGroups& groups, LinearScratch& scratch)> make;
};

template <typename T>
LayerOnRank Linear(TensorGroups& groups, LinearScratch& scratch, LinearRole role, bool bias) {
  const LinearOptions options = {
      .role = role, .shape = {kCutTokens, kCutHidden, kCutInner}, .bias = bias};
  std::shared_ptr<ParallelLinear<T>> layer = *ParallelLinear<T>::Make(groups, options, scratch);
  const LinearBlocks& b = layer->blocks();
  const std::vector<T> x(b.x.elements()), w(b.w.elements()), dy(b.y.elements());
  const Floats of_bias(bias ? b.bias.count : 0);
  return {
      [=]() {
        Floats y(dy.size());
        return Watched([&] { return layer->Forward(x, w, of_bias, y); });
      },
      [=]() {
        Floats dx(x.size()), dw(w.size()), db(of_bias);
        return Watched([&] { return layer->Backward(x, w, dy, {.x = dx, .w = dw, .bias = db}); });
      },
      ScratchOf(groups.grid(), options, {.element = sizeof(T)})};
}

// An MLP, or attention.
template <typename T, template <typename> typename Layers, typename Options>
LayerOnRank Pair(TensorGroups& groups, LinearScratch& scratch, const Options& options) {
  std::shared_ptr<Layers<T>> block = *Layers<T>::Make(groups, options, scratch);
  const LinearBlocks &one = block->first(), &two = block->second();
  const std::vector<T> x(one.x.elements()), w1(one.w.elements()), w2(two.w.elements()),
      dy(two.y.elements());
  const Floats b1(options.bias ? one.bias.count : 0), b2(options.bias ? two.bias.count : 0);
  auto kept = std::make_shared<std::vector<T>>(block->kept());
  return {[=]() {
            Floats y(dy.size());
            return Watched([&] { return block->Forward(x, {w1, b1, w2, b2}, *kept, y); });
          },
          [=]() {
            Floats dx(x.size()), dw1(w1.size()), db1(b1), dw2(w2.size()), db2(b2);
            return Watched([&] {
              return block->Backward(x, {w1, b1, w2, b2}, *kept, dy, {dx, dw1, db1, dw2, db2});
            });
          },
          ScratchOf(groups.grid(), options, {.element = sizeof(T)})};
}

LayerOnRank Norm(TensorGroups& groups, LinearScratch& scratch, NormKind kind) {
  const NormOptions options = {.kind = kind, .tokens = kCutTokens, .hidden = kCutHidden};
  std::shared_ptr<ParallelNorm> norm = *ParallelNorm::Make(groups, options, scratch);
  const Floats x(norm->blocks().x.elements()), gamma(norm->blocks().parameter.count),
      beta(kind == NormKind::kRms ? 0 : gamma.size());
  auto statistics = std::make_shared<Floats>(norm->statistics());
  return {[=]() {
            Floats y(x);
            return Watched([&] { return norm->Forward(x, gamma, beta, *statistics, y); });
          },
          [=]() {
            Floats dx(x), dgamma(gamma), dbeta(beta);
            return Watched([&] {
              return norm->Backward(x, gamma, *statistics, x, {dx, dgamma, dbeta});
            });
          },
          ScratchOf(groups.grid(), options)};
}

LayerOnRank Embedding(TensorGroups& groups, LinearScratch& scratch) {
  const EmbeddingShape shape = {
      .tokens = kCutTokens, .vocabulary = kCutWords, .hidden = kCutHidden};
  std::shared_ptr<ParallelEmbedding> layer = *ParallelEmbedding::Make(groups, shape, scratch);
  const EmbeddingBlocks& b = layer->blocks();
  const std::vector<int32_t> ids(b.ids.count);
  const Floats table(b.table.elements()), y(b.y.elements());
  return {[=]() {
            Floats out(y);
            return Watched([&] { return layer->Forward(ids, table, out); });
          },
          [=]() {
            Floats gradient(table);
            return Watched([&] { return layer->Backward(ids, y, gradient); });
          },
          ScratchOf(groups.grid(), shape)};
}

LayerOnRank CrossEntropy(TensorGroups& groups, LinearScratch& scratch) {
  const LogitsShape shape = {.tokens = kCutTokens, .vocabulary = kCutWords};
  std::shared_ptr<ParallelCrossEntropy> layer = *ParallelCrossEntropy::Make(groups, shape, scratch);
  const Floats logits(layer->block().elements());
  const std::vector<int32_t> targets(layer->block().rows.count);
  auto statistics = std::make_shared<Floats>(layer->statistics());
  return {
      [=]() {
        return Watched([&] { return layer->Forward(logits, targets, *statistics).status(); });
      },
      [=]() {
        Floats gradient(logits);
        return Watched([&] { return layer->Backward(logits, targets, *statistics, 1, gradient); });
      },
      ScratchOf(groups.grid(), shape)};
}

// Those of two layers, or one, whose operands are T.
template <typename T>
std::vector<LayerCase> Products() {
  const auto mlp = [](Activation activation) {
    return [=](TensorGroups& groups, LinearScratch& scratch) {
      return Pair<T, ParallelMlp>(groups, scratch,
                                  MlpOptions{.activation = activation,
                                             .tokens = kCutTokens,
                                             .hidden = kCutHidden,
                                             .inner = kCutInner,
                                             .bias = activation == Activation::kGelu});
    };
  };
  return {{"FirstLinear",
           [](TensorGroups& groups, LinearScratch& scratch) {
             return Linear<T>(groups, scratch, LinearRole::kFirst, true);
           }},
          {"SecondLinear",
           [](TensorGroups& groups, LinearScratch& scratch) {
             return Linear<T>(groups, scratch, LinearRole::kSecond, false);
           }},
          {"Gelu", mlp(Activation::kGelu)},
          {"Swiglu", mlp(Activation::kSwiglu)},
          {"Attention", [](TensorGroups& groups, LinearScratch& scratch) {
             return Pair<T, ParallelAttention>(groups, scratch,
                                               AttentionOptions{.sequences = kCutSequences,
                                                                .sequence_length = kCutLength,
                                                                .hidden = kCutHidden,
                                                                .heads = kCutHeads,
                                                                .kv_heads = kCutHeads,
                                                                .head_dim = kCutHidden / kCutHeads,
                                                                .bias = true});
           }}};
}

std::vector<LayerCase> Layers() {
  std::vector<LayerCase> layers = {
      {"LayerNorm", [](TensorGroups& groups,
                       LinearScratch& scratch) { return Norm(groups, scratch, NormKind::kLayer); }},
      {"RmsNorm", [](TensorGroups& groups,
                     LinearScratch& scratch) { return Norm(groups, scratch, NormKind::kRms); }},
      {"Embedding", Embedding},
      {"CrossEntropy", CrossEntropy}};
  for (const auto& products : {Products<float>(), Products<kernels::BFloat16>()}) {
    layers.insert(layers.end(), products.begin(), products.end());
  }
  return layers;
}

// Calls `body` on every rank of a grid, each with its own memory. Rank 0's memory refuses the
// request `refused`.
void OnCountedGrid(
    const GridCase& grid, int refused,
    const std::function<void(TensorGroups&, LinearScratch&, CountingMemory&)>& body) {
  Communicators world = LocalBackend().connect(grid.ranks, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    auto groups = TensorGroups::Connect(grid.grid(), rank);
    ASSERT_TRUE(groups.ok()) << groups.status();
    CountingMemory memory(rank.Rank() == 0 ? refused : 0);
    LinearScratch scratch(nullptr, memory);
    body(**groups, scratch, memory);
  });
}

class LayerScratch : public testing::TestWithParam<GridCase> {};

TEST_P(LayerScratch, OfEachLayer_IsTheClosedFormAndComesBack) {
  for (const LayerCase& c : Layers()) {
    SCOPED_TRACE(c.name);
    OnCountedGrid(GetParam(), 0,
                  [&](TensorGroups& groups, LinearScratch& scratch, CountingMemory& memory) {
                    const LayerOnRank layer = c.make(groups, scratch);
                    EXPECT_EQ(memory.requests(), 0);
                    ASSERT_EQ(layer.forward(), absl::OkStatus());
                    EXPECT_EQ(memory.TakePeakBytes(), layer.expected.forward);
                    EXPECT_EQ(memory.in_use_bytes(), 0u);
                    ASSERT_EQ(layer.backward(), absl::OkStatus());
                    EXPECT_EQ(memory.TakePeakBytes(), layer.expected.backward);
                    EXPECT_EQ(memory.in_use_bytes(), 0u);
                  });
  }
}

// Shows that the next test would notice a layer that allocates memory itself.
TEST(WatchedHeap, OfMatricesThatACallMakes_HasTheLargest) {
  Floats one, two;
  WatchHeap();
  one.resize(1000);
  two.resize(10);
  EXPECT_EQ(LargestPieceOfHeap(), sizeof(float) * 1000);
}

// Beside the counted memory, calls allocate only small blocks for locks and tasks, and no matrix.
TEST_P(LayerScratch, OfEachLayer_IsAllThatItTakes) {
  constexpr size_t kSmall = 512, kAny = std::numeric_limits<size_t>::max();
  for (const LayerCase& c : Layers()) {
    SCOPED_TRACE(c.name);
    OnCountedGrid(GetParam(), 0,
                  [&](TensorGroups& groups, LinearScratch& scratch, CountingMemory&) {
                    const LayerOnRank layer = c.make(groups, scratch);
                    for (int time = 0; time < 2; ++time) {
                      ASSERT_EQ(layer.forward(), absl::OkStatus());
                      EXPECT_LE(taken_from_heap, time == 0 ? kAny : kSmall);
                      ASSERT_EQ(layer.backward(), absl::OkStatus());
                      EXPECT_LE(taken_from_heap, time == 0 ? kAny : kSmall);
                    }
                  });
  }
}

// The status of a pass on each rank if rank 0's request with this number is refused.
std::vector<absl::Status> RunRefused(const GridCase& grid, const LayerCase& c, int refused) {
  std::vector<absl::Status> ends(static_cast<size_t>(grid.ranks));
  OnCountedGrid(grid, refused,
                [&](TensorGroups& groups, LinearScratch& scratch, CountingMemory& memory) {
                  const LayerOnRank layer = c.make(groups, scratch);
                  absl::Status end = layer.forward();
                  if (end.ok()) end = layer.backward();
                  EXPECT_EQ(memory.in_use_bytes(), 0u);
                  ends[static_cast<size_t>(groups.rank())] = end;
                });
  return ends;
}

TEST_P(LayerScratch, RefusedOnOneRank_IsSaidThereAndEndsTheOthers) {
  for (const LayerCase& c : Layers()) {
    SCOPED_TRACE(c.name);
    for (int refused = 1;; ++refused) {
      const std::vector<absl::Status> ends = RunRefused(GetParam(), c, refused);
      if (ends[0].ok()) break;  // there are fewer requests
      EXPECT_EQ(ends[0].code(), absl::StatusCode::kResourceExhausted) << ends[0];
      EXPECT_THAT(std::string(ends[0].message()), HasSubstr("B): a test refuses it"));
      for (size_t rank = 1; rank < ends.size(); ++rank) {
        // Ranks that share no axis with rank 0 may find that a rank between them has gone.
        EXPECT_THAT(ends[rank].code(), AnyOf(absl::StatusCode::kOk, absl::StatusCode::kAborted,
                                             absl::StatusCode::kUnavailable))
            << ends[rank];
        if (absl::IsAborted(ends[rank])) {
          EXPECT_THAT(std::string(ends[rank].message()), HasSubstr("a test refuses it"));
        }
      }
    }
  }
}

std::vector<GridCase> Cases() {
  return {{TensorMode::k1DSequence, 3},
          {TensorMode::k2D, 4},
          {TensorMode::k25D, 8, 2},
          {TensorMode::k3D, 8}};
}

INSTANTIATE_TEST_SUITE_P(Grids, LayerScratch, testing::ValuesIn(Cases()),
                         [](const auto& parameters) { return parameters.param.name(); });

}  // namespace
}  // namespace geminid::collectives
