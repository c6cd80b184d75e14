// The costs of each operator of a model: bytes saved, bytes of workspace, and operations. Closed
// forms for T = batch x sequence tokens, S tokens per sequence, bf16 elements of 2 bytes, h =
// hidden, q = query columns, v = key/value columns, a = heads, i = intermediate, g = 2 if the MLP
// is gated and else 1, e = experts per token. Attention is blocked (arXiv:2205.14135): nothing
// grows with S squared. Encoder and decoder have sequences of the same length.
#ifndef GEMINID_TRAINING_FORECAST_COSTS_H_
#define GEMINID_TRAINING_FORECAST_COSTS_H_

#include <cstdint>

#include "training/forecast/model.h"

namespace geminid::forecast {

// The sequences that one rank processes between two updates.
struct Batch {
  std::uint64_t sequences = 0;
  std::uint64_t sequence_length = 0;
  std::uint64_t tokens() const { return sequences * sequence_length; }
};

inline constexpr std::uint64_t kElementBytes = 2;  // bf16 or fp16
inline constexpr std::uint64_t kFloatBytes = 4;
// Rows of logits at a time: enough for the product to run at full rate, while a vocabulary of
// 50,000 takes 0.3 GB and not 2 kB per token.
inline constexpr std::uint64_t kLogitRows = 1024;

// Bytes that one sublayer saves for its backward pass.
struct Saved {
  // The sublayer's input, from which all else can be recomputed: 2 T h.
  std::uint64_t input_bytes = 0;
  // Besides: attention  norm 2 T h, statistics of the norm, q, k, v and the attended values
  //                     2 T (2 q + 2 v), logarithms of the softmax's sums 4 T a; if queries and
  //                     keys have norms, the inputs of these 2 T (q + v) and their statistics;
  //          MLP        norm 2 T h, its statistics, the activation's inputs 2 T i g e and outputs
  //                     2 T i e; with a router its probabilities 4 T experts, and for each expert
  //                     of a token a copy of the token's row, in and out, 4 T h e;
  //          both       if the output has a norm, the input of that 2 T h and its statistics.
  std::uint64_t rest_bytes = 0;
  // The bytes of the rest that are as wide as the heads or the MLP, not as the residual stream.
  std::uint64_t wide_bytes = 0;
  std::uint64_t bytes() const { return input_bytes + rest_bytes; }
};
Saved SavedBytes(const Model& model, Operator part, const Batch& batch);
// What geminid-train saves with --activations keep: the input and, of the rest, what products of
// matrices made and the logarithms of sums. It computes norms and the activation's outputs again.
std::uint64_t TrainerSavedBytes(const Model& model, Operator part, const Batch& batch);

// The encoder's output, which all layers of the decoder read: 2 T h, saved until the encoder's
// backward pass. Its gradient is as large, and accumulates during the decoder's. 0 without both.
std::uint64_t EncoderOutputBytes(const Model& model, const Batch& batch);

enum class PassDirection : std::uint8_t { kForward, kBackward };

// Memory of the operator that is neither weight nor saved. Forward: its output. Backward: the
// gradients of the residual stream and of everything saved. kOutput does both turns at once, and
// needs kLogitRows of logits (2 and 4 bytes) besides two residual streams. Either turn has tokens
// and targets (8 T, or 12 T with encoder and decoder), or patches and targets.
struct Workspace {
  std::uint64_t batch_bytes = 0;   // tokens, patches, targets
  std::uint64_t stream_bytes = 0;  // as wide as the residual stream
  std::uint64_t wide_bytes = 0;    // as Saved::wide_bytes
  std::uint64_t logit_bytes = 0;
  std::uint64_t bytes() const { return batch_bytes + stream_bytes + wide_bytes + logit_bytes; }
};
Workspace WorkspaceOf(const Model& model, Operator op, PassDirection turn, const Batch& batch);
std::uint64_t WorkspaceBytes(const Model& model, Operator op, PassDirection turn,
                             const Batch& batch);

// Multiplications and additions. A matrix of n elements takes 2 T n forward and 4 T n backward; of
// experts only those count that a token visits; a classifier's n elements see one token per
// sequence. Causal attention takes 2 T S q forward (two products, half of each masked) and 5 T S q
// backward (five products, arXiv:2307.08691); other attention takes twice that. Norms and
// activations do not count: memory bounds them.
double Operations(const Model& model, Operator op, PassDirection turn, const Batch& batch);

// The least bytes that the operator moves through device memory: its weights (read; in backward
// read and written; of experts at most one per token), what it saves and its workspace, once each.
double DeviceTraffic(const Model& model, Operator op, PassDirection turn, const Batch& batch);
// The part of DeviceTraffic that the weights cause.
double WeightTraffic(const Model& model, Operator op, PassDirection turn, const Batch& batch);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_COSTS_H_
