#ifndef GEMINID_TESTS_DAEMON_PLANNER_TRANSFORMERS_H_
#define GEMINID_TESTS_DAEMON_PLANNER_TRANSFORMERS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/planner/contract/trace.h"

namespace geminid::planner {

// The published dimensions that decide the sizes of a decoder-only transformer.
struct Transformer {
  const char* name;
  std::uint64_t layers;
  std::uint64_t hidden;
  std::uint64_t feed_forward;
  // Matrices of the feed-forward block: two, or three if it is gated.
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
  // Saves only the input of each layer, and computes the layer again in backward.
  bool recompute = true;
};

// One step in bf16: the embedding, then attention and feed-forward of each layer, then the head;
// backward in reverse. Each block is one chunk, so chunks have the sizes of the model. Activations
// that forward saves for backward grow with each layer and shrink again. Each block has its own
// temporaries.
Trace TransformerTrace(const Transformer& model, const TrainingShape& shape);

}  // namespace geminid::planner

#endif  // GEMINID_TESTS_DAEMON_PLANNER_TRANSFORMERS_H_
