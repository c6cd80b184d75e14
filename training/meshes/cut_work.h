// The work of one rank of a mesh in a model's step, as the planner's question. Pure.
#ifndef GEMINID_TRAINING_MESHES_CUT_WORK_H_
#define GEMINID_TRAINING_MESHES_CUT_WORK_H_

#include <cstdint>
#include <vector>

#include "training/forecast/rank_work.h"
#include "training/meshes/exchange.h"
#include "training/meshes/mesh_spec.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::parallel {

// The groups of a mesh that are along one axis or neighbouring ones.
GroupShape SharingGroup(const MeshSpec& mesh);  // data and sequence
GroupShape SequenceGroup(const MeshSpec& mesh);
GroupShape PipelineGroup(const MeshSpec& mesh);

// The linear layers of a part or an end of the model, as one micro-batch passes them on the ranks
// of one tensor-parallel grid.
struct PartLinear {
  collectives::LinearRole role = collectives::LinearRole::kFirst;
  collectives::LinearShape shape;
};
std::vector<PartLinear> LinearsOf(const forecast::Model& model, forecast::Operator op,
                                  std::uint64_t tokens);

// Beside forecast::RankWork, the parts of its seconds and what is received. A micro-batch is
// job.batch, of all ranks that share its tokens. Compute is cut evenly:
//
//   seconds = the longer of operations / (tensor x sequence ranks) at the achieved rate
//             and the traffic of device memory,  and exchanges:
//
// In 1D and 3D each exchange is waited for: a bound, as some run beside products. In 2D and 2.5D
// the blocks of a product travel while those before are multiplied, and so do the sums of the step
// before, so that of the longer and the shorter of the two the sum is longer + shorter / q; what is
// summed over depth is waited for, which is a bound, too.
// In a ring of P ranks keys and values travel beside the attention to those that are here, but for
// the last of P turns: what that takes longer is waited for.
//
// Elements are bf16. Where Job::float_cut_flops says so, cut layers have activations, exchanges and
// products in fp32 instead, and the weights of an operator widened beside it, whose place its
// gradients take.
//
// Memory is sharded as training/nn/parallel/tensor/tensor_traffic.h says: the residual stream as
// the X of a first layer, heads and the MLP's inside as that of a second, matrices as W.
class CutWork : public forecast::RankWork {
 public:
  // All outlive this. `range` is of the stage; `in_flight`: micro-batches whose activations the
  // stage holds at most, at least 1.
  CutWork(const forecast::Model& model, const forecast::Job& job, const MeshSpec& mesh,
          const forecast::ModelPart& range, double in_flight);

  forecast::ModelPart part() const override { return range_; }
  std::vector<forecast::Tensor> OwnTensors() const override;
  std::uint32_t sharing_ranks() const override {
    return static_cast<std::uint32_t>(mesh_.sharing_ranks());
  }
  double held_micro_batches() const override { return in_flight_ - 1; }
  forecast::Saved SavedOf(forecast::Operator part) const override;
  std::uint64_t WorkspaceOf(forecast::Operator op, forecast::Turn turn) const override;
  double SecondsOf(forecast::Operator op, forecast::Turn turn) const override;

  double ComputeSecondsOf(forecast::Operator op, forecast::Turn turn) const;
  // Of a backward pass the gradients of weights: products as long as the forward's.
  double WeightSecondsOf(forecast::Operator op) const;
  // What these are made from, where they come later than the input's: what matrices read, and the
  // gradients of what they give.
  std::uint64_t LaterBytesOf(forecast::Operator op) const;
  // Received between the ranks of the grid and of a sequence.
  double ReceivedBytesOf(forecast::Operator op, forecast::Turn turn) const;
  // What a stage sends to the next for one micro-batch.
  double BoundaryBytes() const;

 private:
  struct Exchanged {
    double bytes = 0;
    double hidden_seconds = 0;  // beside products
    double waited_seconds = 0;
  };
  Exchanged ExchangedOf(forecast::Operator op, forecast::Turn turn) const;
  bool Rings() const { return mesh_.sequence > 1 && mesh_.sequence_mode == SequenceMode::kRing; }
  std::uint64_t RingBytes(forecast::Operator op, forecast::Turn turn) const;
  std::vector<Exchange> EmbeddingExchanges() const;
  double LinearOperations(forecast::Operator op) const;
  double RingSeconds(forecast::Operator op, forecast::Turn turn, double travel_seconds) const;
  double KeyElements() const;
  std::uint64_t ScratchBytes(forecast::Operator op) const;
  // Of what lies between weights, in kElementBytes; and the rate of products.
  double width() const;
  double OperationsPerSecond() const;
  std::uint64_t WidenedBytes(forecast::Operator op) const;
  forecast::Tensor Cut(forecast::Tensor tensor) const;

  const forecast::Model& model_;
  const forecast::Job& job_;
  const MeshSpec mesh_;
  const forecast::ModelPart range_;
  const double in_flight_;
  const collectives::TensorGrid grid_;
  forecast::Batch part_;  // job.batch less what the axis of sequence cuts off
  // Of whole matrices, what a rank has.
  double stream_share_ = 1, wide_share_ = 1, weight_share_ = 1;
  double multiplied_share_ = 1;  // of W, what passes through a rank's products
};

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_CUT_WORK_H_
