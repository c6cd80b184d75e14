// Causal self-attention over a tensor-parallel grid, with the layers before and behind it. What
// products read, what attention works on and what is kept is fp32 or bf16, all else fp32:
//
//   q, k, v = x Wq^T + bq, ...   sections of one first layer; q and k get rotary positions
//   y = attention(q, k, v) Wo^T + bo   (kernels/model/attention/attention.h)
//
// A rank has whole heads of whole sequences, so it attends by itself: only the two layers exchange
// data (parallel_linear.h). Alternatively the ranks of one grid have the same piece of each
// sequence, and other grids have the other pieces. Then ranks at the same place in their grids
// attend together (training/nn/parallel/sequence/sequence_parallel_attention.h), and "sequence"
// below means such a piece. The layers' shapes are, with c = head_dim,
//
//   first   {tokens, hidden, (heads + 2 kv_heads) c};  second  {tokens, heads c, hidden}
//
//   mode             sequences must be divisible by  heads and kv_heads by
//   1D, 1D-sequence  1                               P
//   2D, 2.5D         d q                             q
//   3D               d^2                             d
//
// Beside x, a rank keeps for the backward pass: its block of the first layer's Y, its block of the
// second layer's X, and one number for each token and head. In every mode that is 1/P of the values
// on a single rank.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_ATTENTION_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_ATTENTION_H_

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/model/attention/attention.h"
#include "kernels/model/rotary/rotary.h"
#include "training/nn/parallel/sequence/sequence_parallel_attention.h"
#include "training/nn/parallel/tensor/fused_outputs.h"
#include "training/nn/parallel/tensor/linear_scratch.h"
#include "training/nn/parallel/tensor/parallel_linear.h"
#include "training/nn/parallel/tensor/tensor_groups.h"

namespace geminid::collectives {

struct AttentionOptions {
  size_t sequences = 0;
  size_t sequence_length = 0;  // tokens are sequences, one after another
  size_t hidden = 0;
  size_t heads = 0;
  size_t kv_heads = 0;  // divides heads
  size_t head_dim = 0;  // at most kernels::kAttentionHeadDimMax
  bool bias = false;
  double rotary_theta = 0;  // 10000 in LLaMA 2; 0: queries and keys do not rotate
  // Replace rotary_theta: head_dim/2 angles, and the factor of cosines and sines
  // (kernels/model/rotary/rotary.h). Empty: rotary_theta is used.
  std::vector<double> rotary_angles = {};
  double rotary_length = 1;
  size_t window = 0;  // kernels::AttentionShape::window; not with `pieces`
  // Attends together with other grids; outlives the block. Null: sequences are whole.
  SequenceParallelAttention* pieces = nullptr;
  // The positions of the tokens in their sequence. Empty: consecutive from 0 on.
  std::vector<size_t> positions = {};

  size_t tokens() const { return sequences * sequence_length; }
};

// All ranks of the grid call the same methods in the same order. One thread at a time. Errors are
// those of the layers; INVALID_ARGUMENT for a span that is not its block's size, before anything is
// sent. T is float or kernels::BFloat16.
template <typename T>
class ParallelAttention {
 public:
  // `groups` and `scratch` outlive the block, which holds no memory but the table of positions.
  // INVALID_ARGUMENT for sizes that the layers refuse, and for heads or sequences that the grid
  // would have to split; the message names the divisor.
  static absl::StatusOr<std::unique_ptr<ParallelAttention>> Make(TensorGroups& groups,
                                                                 const AttentionOptions& options,
                                                                 LinearScratch& scratch);

  // x has the layout of first().x, and y that of second().y; both layouts are equal.
  const LinearBlocks& first() const { return first_->blocks(); }
  const LinearBlocks& second() const { return second_->blocks(); }
  // The sections are queries, keys and values.
  const FusedOutputs& outputs() const { return outputs_; }
  // Elements that the backward pass needs of the forward pass, beside x: first a number in fp32 for
  // each token and head, so what has room for them lies as fp32 must.
  size_t kept() const { return OfHeads() + first().y.elements() + second().x.elements(); }

  // On a GPU: the table of positions, in the layers' memory, that later calls read. On the host the
  // block makes the table itself.
  void ReadTable(const RotaryTable& table) { table_ = table; }

  struct Parameters {
    std::span<const T> w_qkv;
    std::span<const float> b_qkv;  // empty without a bias, as b_out
    std::span<const T> w_out;
    std::span<const float> b_out;
  };
  absl::Status Forward(std::span<const T> x, const Parameters& parameters, std::span<T> kept,
                       std::span<float> y);

  struct Gradients {
    std::span<float> x, w_qkv, b_qkv, w_out, b_out;
  };
  // Overwrites the gradients. If several ranks store the same elements of a parameter, each gets
  // their whole gradient.
  absl::Status Backward(std::span<const T> x, const Parameters& parameters, std::span<const T> kept,
                        std::span<const T> dy, const Gradients& gradients);

 private:
  ParallelAttention(TensorGroups& groups, const AttentionOptions& options, FusedOutputs outputs,
                    LinearScratch& scratch)
      : groups_(groups), options_(options), outputs_(std::move(outputs)), scratch_(scratch) {}

  absl::Status MakeLayers();
  absl::Status MakeTable();

  // What is kept.
  template <typename Element>
  struct AttentionActivations {
    std::span<Element> qkv, attended;
    float* lse;
  };
  template <typename Element>
  AttentionActivations<Element> ValuesIn(std::span<Element> kept) const;
  size_t Sums() const { return shape_.heads * second().x.rows.count; }
  size_t OfHeads() const { return Sums() * sizeof(float) / sizeof(T); }

  // The sections as tensors of their own, in fp32: [tokens, its columns].
  struct Dense {
    std::span<float> q, k, v;
  };
  // One behind the other, in what holds as much as qkv.
  Dense Cut(std::span<float> all) const;
  absl::Status Gather(std::span<const T> qkv, const Dense& to) const;
  absl::Status Scatter(const Dense& from, std::span<T> qkv) const;
  // Hands on what this rank takes; if it was refused, those that it attends with are told, too.
  template <typename Taken>
  absl::StatusOr<Taken> OrTellRanks(absl::StatusOr<Taken> taken);
  absl::StatusOr<RoundedResults<T>> Rounding(std::span<T> to);
  absl::StatusOr<Converted<float>> Widened(std::span<const T> values);

  // Of what is kept, or of its gradient: queries, keys, values (sections 0 to 2).
  template <class Element>
  kernels::HeadsView<Element> Section(std::span<Element> qkv, size_t section) const;
  absl::Status Rotate(Rotation rotation, std::span<T> qkv) const;
  absl::Status Attend(const AttentionActivations<T>& kept);
  absl::Status AttendWithOthers(const AttentionActivations<T>& kept);
  absl::Status AttendBackward(const AttentionActivations<const T>& kept,
                              std::span<const T> dattended, std::span<T> dqkv);
  absl::Status AttendBackwardWithOthers(const AttentionActivations<const T>& kept,
                                        std::span<const T> dattended, std::span<T> dqkv);

  TensorGroups& groups_;
  const AttentionOptions options_;
  const FusedOutputs outputs_;
  LinearScratch& scratch_;
  std::unique_ptr<ParallelLinear<T>> first_, second_;
  kernels::AttentionShape shape_;  // of this rank's heads and sequences
  std::vector<float> cos_, sin_;   // of each token of a sequence, where the host computes
  RotaryTable table_;              // null without rotary positions
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_ATTENTION_H_
