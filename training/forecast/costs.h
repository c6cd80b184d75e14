// What each operator of a model costs: bytes it keeps and needs, operations it does. Closed forms,
// for T = batch x sequence tokens, S tokens per sequence, bf16 elements of 2 bytes, h = hidden,
// q = query columns, v = key/value columns, a = heads, i = intermediate, g = 2 if the MLP is gated
// and else 1, e = experts per token. Attention is blocked (arXiv:2205.14135): nothing grows with S
// squared. Encoder and decoder have sequences of the same length.
#ifndef GEMINID_TRAINING_FORECAST_COSTS_H_
#define GEMINID_TRAINING_FORECAST_COSTS_H_

#include <cstdint>

#include "training/forecast/model.h"

namespace geminid::forecast {

// What one rank works on between two updates.
struct Batch {
  std::uint64_t sequences = 0;
  std::uint64_t sequence_length = 0;
  std::uint64_t tokens() const { return sequences * sequence_length; }
};

inline constexpr std::uint64_t kElementBytes = 2;  // bf16 or fp16
inline constexpr std::uint64_t kFloatBytes = 4;
// Rows of logits at a time: enough that the product runs at full rate, while a vocabulary of 50,000
// takes 0.3 GB and not 2 kB per token.
inline constexpr std::uint64_t kLogitRows = 1024;

// Bytes that one part of a layer keeps for its backward pass.
struct Saved {
  // The part's input, from which all else can be computed again: 2 T h.
  std::uint64_t input_bytes = 0;
  // Besides: attention  norm 2 T h, statistics of the norm, q, k, v and the attended values
  //                     2 T (2 q + 2 v), logarithms of the softmax's sums 4 T a; with norms of
  //                     queries and keys, these before it 2 T (q + v) and statistics;
  //          MLP        norm 2 T h, its statistics, what the activation reads 2 T i g e, and gives
  //                     2 T i e; with a router its shares 4 T experts, and for each expert of a
  //                     token a copy of its row going in and coming out 4 T h e;
  //          both       with a norm of the output, what it reads 2 T h and statistics.
  std::uint64_t rest_bytes = 0;
  // Of the rest, what is as wide as the heads or the MLP and not as the residual stream.
  std::uint64_t wide_bytes = 0;
  std::uint64_t bytes() const { return input_bytes + rest_bytes; }
};
Saved SavedBytes(const Model& model, Operator part, const Batch& batch);

// What the encoder gives, which all of the decoder's layers read: 2 T h, kept until the encoder's
// backward pass. Its gradient is as large, and gathers throughout the decoder's. 0 without both.
std::uint64_t EncoderOutputBytes(const Model& model, const Batch& batch);

enum class Turn : std::uint8_t { kForward, kBackward };

// Memory of the operator that is neither weight nor saved: its output in forward; in backward the
// gradients of the residual stream and of everything saved. kOutput does both turns at once and
// needs kLogitRows of logits (2 and 4 bytes) beside two residual streams. Whatever the turn, tokens
// and targets (8 T, or 12 T with encoder and decoder), or patches and targets.
struct Workspace {
  std::uint64_t batch_bytes = 0;   // tokens, patches, targets
  std::uint64_t stream_bytes = 0;  // as wide as the residual stream
  std::uint64_t wide_bytes = 0;    // as Saved::wide_bytes
  std::uint64_t logit_bytes = 0;
  std::uint64_t bytes() const { return batch_bytes + stream_bytes + wide_bytes + logit_bytes; }
};
Workspace WorkspaceOf(const Model& model, Operator op, Turn turn, const Batch& batch);
std::uint64_t WorkspaceBytes(const Model& model, Operator op, Turn turn, const Batch& batch);

// Multiplications and additions. A matrix of n elements takes 2 T n forward and 4 T n backward, of
// experts only those that a token visits; a classifier's n elements see one token of each sequence.
// Causal attention takes 2 T S q forward (two products of which half is masked) and 5 T S q
// backward (five products, arXiv:2307.08691), other attention twice that. Norms and activations are
// not counted: they are bound by memory.
double Operations(const Model& model, Operator op, Turn turn, const Batch& batch);

// Bytes the operator moves through device memory at least: its weights (read; in backward read and
// written; of experts as many as there are tokens for), what it saves and its workspace, once each.
double DeviceTraffic(const Model& model, Operator op, Turn turn, const Batch& batch);
// The weights' part of it.
double WeightTraffic(const Model& model, Operator op, Turn turn, const Batch& batch);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_COSTS_H_
