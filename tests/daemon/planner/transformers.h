#ifndef GEMINID_TESTS_DAEMON_PLANNER_TRANSFORMERS_H_
#define GEMINID_TESTS_DAEMON_PLANNER_TRANSFORMERS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/planner/contract/trace.h"

namespace geminid::planner {

// The dimensions that decide the sizes of a decoder-only transformer, as published with it.
struct Transformer {
  const char* name;
  std::uint64_t layers;
  std::uint64_t hidden;
  std::uint64_t feed_forward;
  // Matrices of the feed-forward block: two, or three where it is gated.
  std::uint64_t feed_forward_matrices;
  std::uint64_t vocabulary;
  std::uint64_t positions;  // learned; 0: none
  bool tied_head;           // the output uses the embedding's weights
};

// GPT-2 XL; OPT 6.7B, 13B and 30B; LLaMA 7B and 65B.
std::span<const Transformer> PublishedTransformers();

struct TrainingShape {
  std::uint64_t device_bytes = 0;
  std::uint64_t batch = 1;
  std::uint64_t sequence = 1024;
  std::uint64_t world_size = 1;
  // Keep the input of each layer only, and compute the layer again in backward.
  bool recompute = true;
};

// One step in bf16: embedding, then per layer attention and feed-forward, then the head; backward
// in reverse. One chunk per block, so chunks have the sizes of the model. What forward saves for
// backward grows with each layer and shrinks again; each block has its own temporaries beside it.
Trace TransformerTrace(const Transformer& model, const TrainingShape& shape);

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_TRANSFORMERS_H_
