#include "tests/daemon/planner/transformers.h"

#include <array>
#include <cstddef>

namespace geminid::planner {
namespace {

constexpr std::uint64_t kWeightBytes = 2;  // bf16
constexpr double kFlopsPerSecond = 150e12;
constexpr double kLinkBytesPerSecond = 25e9;
// A multiply and an add per weight and token. Backward does both for inputs and for weights.
constexpr double kForwardFlops = 2;
constexpr double kBackwardFlops = 4;
// Bytes saved per token and hidden unit without recomputation (Korthikanti et al. 2022, equation
// 2). The attention map does not count, because fused attention does not store it. Of 34 bytes a
// layer, the feed-forward block has 19, attention 13, and their layer norms the rest.
constexpr std::uint64_t kSavedByAttention = 13 + 2;
constexpr std::uint64_t kSavedByFeedForward = 19 - 2 + 2;
// The logits in bf16 and their gradient in fp32.
constexpr std::uint64_t kBytesPerLogit = 2 + 4;

class Builder {
 public:
  Builder(const Transformer& model, const TrainingShape& shape) : model_(model), shape_(shape) {
    trace_.arena_bytes = shape.device_bytes;
    trace_.link = {.h2d_bytes_per_second = kLinkBytesPerSecond,
                   .d2h_bytes_per_second = kLinkBytesPerSecond,
                   .latency_seconds = 10e-6};
  }

  Trace Build();

 private:
  std::uint64_t tokens() const { return shape_.batch * shape_.sequence; }
  std::uint64_t StreamBytes() const { return tokens() * model_.hidden * kWeightBytes; }

  ChunkIndex AddChunk(std::uint64_t parameters) {
    const std::uint64_t bytes = parameters * kWeightBytes;
    const std::uint64_t share = (bytes + shape_.world_size - 1) / shape_.world_size;
    trace_.chunks.push_back({.id = trace_.chunks.size(),
                             .size_bytes = bytes,
                             .transfer_bytes = share,
                             .gradient_bytes = share});
    return static_cast<ChunkIndex>(trace_.chunks.size() - 1);
  }

  void Run(ChunkIndex chunk, double flops_per_weight, std::uint64_t temporary_bytes,
           bool last_use) {
    const double weights =
        static_cast<double>(trace_.chunks[chunk].size_bytes) / static_cast<double>(kWeightBytes);
    trace_.moments.push_back({.uses = {{.chunk = chunk, .invalidates = last_use}},
                              .workspace_bytes = saved_bytes_ + temporary_bytes,
                              .compute_seconds = flops_per_weight * weights *
                                                 static_cast<double>(tokens()) / kFlopsPerSecond});
  }

  void Forward();
  void Backward();
  void BackwardOfLayer(std::size_t layer);

  const Transformer& model_;
  const TrainingShape& shape_;
  Trace trace_;
  ChunkIndex embedding_ = 0, head_ = 0;
  std::vector<ChunkIndex> attention_, feed_forward_;
  std::uint64_t saved_bytes_ = 0;
  std::uint64_t attention_bytes_ = 0, feed_forward_bytes_ = 0, logit_bytes_ = 0;
};

void Builder::Forward() {
  Run(embedding_, 0, StreamBytes(), false);
  saved_bytes_ += StreamBytes();
  for (std::size_t layer = 0; layer < model_.layers; ++layer) {
    Run(attention_[layer], kForwardFlops, attention_bytes_, false);
    if (!shape_.recompute) saved_bytes_ += attention_bytes_;
    Run(feed_forward_[layer], kForwardFlops, feed_forward_bytes_, false);
    saved_bytes_ += shape_.recompute ? StreamBytes() : feed_forward_bytes_;
  }
  Run(head_, kForwardFlops, logit_bytes_, false);
}

void Builder::BackwardOfLayer(std::size_t layer) {
  const ChunkIndex attention = attention_[layer];
  const ChunkIndex feed_forward = feed_forward_[layer];
  const std::uint64_t gradient = StreamBytes();
  if (shape_.recompute) {
    saved_bytes_ -= StreamBytes();
    Run(attention, kForwardFlops, attention_bytes_ + gradient, false);
    Run(feed_forward, kForwardFlops, attention_bytes_ + feed_forward_bytes_ + gradient, false);
    Run(feed_forward, kBackwardFlops, attention_bytes_ + feed_forward_bytes_ + gradient, true);
    Run(attention, kBackwardFlops, attention_bytes_ + gradient, true);
    return;
  }
  Run(feed_forward, kBackwardFlops, gradient, true);
  saved_bytes_ -= feed_forward_bytes_;
  Run(attention, kBackwardFlops, gradient, true);
  saved_bytes_ -= attention_bytes_;
}

void Builder::Backward() {
  Run(head_, kBackwardFlops, logit_bytes_, !model_.tied_head);
  for (std::size_t layer = model_.layers; layer-- > 0;) BackwardOfLayer(layer);
  saved_bytes_ -= StreamBytes();
  Run(embedding_, 0, StreamBytes(), true);
}

Trace Builder::Build() {
  const std::uint64_t h = model_.hidden;
  attention_bytes_ = kSavedByAttention * tokens() * h;
  // The published 19 bytes are for a feed-forward width of four times the hidden one.
  feed_forward_bytes_ = kSavedByFeedForward * tokens() * model_.feed_forward / 4;
  logit_bytes_ = kBytesPerLogit * tokens() * model_.vocabulary;
  embedding_ = AddChunk((model_.vocabulary + model_.positions) * h);
  for (std::size_t layer = 0; layer < model_.layers; ++layer) {
    attention_.push_back(AddChunk(4 * h * h + 6 * h));
    feed_forward_.push_back(
        AddChunk(model_.feed_forward_matrices * h * model_.feed_forward + model_.feed_forward + h));
  }
  head_ = model_.tied_head ? embedding_ : AddChunk(model_.vocabulary * h);
  Forward();
  Backward();
  return trace_;
}

constexpr std::array kPublished = {
    Transformer{"GPT-2 XL", 48, 1600, 6400, 2, 50257, 1024, true},
    Transformer{"OPT-6.7B", 32, 4096, 16384, 2, 50272, 2050, true},
    Transformer{"OPT-13B", 40, 5120, 20480, 2, 50272, 2050, true},
    Transformer{"OPT-30B", 48, 7168, 28672, 2, 50272, 2050, true},
    Transformer{"LLaMA-7B", 32, 4096, 11008, 3, 32000, 0, false},
    Transformer{"LLaMA-65B", 80, 8192, 22016, 3, 32000, 0, false},
};

}  // namespace

std::span<const Transformer> PublishedTransformers() { return kPublished; }

Trace TransformerTrace(const Transformer& model, const TrainingShape& shape) {
  return Builder(model, shape).Build();
}

}  // namespace geminid::planner
