// The work of one rank of a mesh in a model's step, in the form that the planner takes. Pure.
#ifndef GEMINID_TRAINING_MESHES_MESH_RANK_WORK_H_
#define GEMINID_TRAINING_MESHES_MESH_RANK_WORK_H_

#include <cstdint>
#include <vector>

#include "training/forecast/rank_work.h"
#include "training/meshes/exchange.h"
#include "training/meshes/mesh_spec.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::parallel {

// The groups of ranks along one axis of a mesh, or along neighbouring axes.
GroupShape SharingGroup(const MeshSpec& mesh);  // data and sequence
GroupShape SequenceGroup(const MeshSpec& mesh);
GroupShape PipelineGroup(const MeshSpec& mesh);

// The linear layers of an operator, for one micro-batch on the ranks of one tensor-parallel grid.
struct PartLinear {
  collectives::LinearRole role = collectives::LinearRole::kFirst;
  collectives::LinearShape shape;
};
std::vector<PartLinear> LinearsOf(const forecast::Model& model, forecast::Operator op,
                                  std::uint64_t tokens);

// A forecast::RankWork that also has the parts of its times and the received bytes. job.batch is a
// micro-batch of all ranks that share its tokens. Computation is divided evenly among them:
//
//   seconds = the longer of operations / (tensor x sequence ranks) at the achieved rate
//             and the traffic of device memory,  and exchanges:
//
// 1D and 3D: computation waits for each exchange. That is an upper bound, as some overlap products.
// 2D and 2.5D: the exchange of one block overlaps the product of the one before, so both together
// take longer + shorter / q of the longer and the shorter time. Computation waits for the sum over
// depth, which is an upper bound, too. A ring of P ranks: the exchange of keys and values overlaps
// attention to the previous ones, except in the last of P turns. Computation waits for the rest of
// the exchange.
//
// Elements are bf16.
//
// Memory is sharded as training/nn/parallel/tensor/tensor_traffic.h says: the residual stream as
// the X of a first layer, heads and the MLP's inside as that of a second, matrices as W.
class MeshRankWork : public forecast::RankWork {
 public:
  // All outlive this object. `range`: the stage's layers. `in_flight`, at least 1: the most
  // micro-batches whose activations the stage holds.
  MeshRankWork(const forecast::Model& model, const forecast::Job& job, const MeshSpec& mesh,
               const forecast::ModelPart& range, double in_flight);

  forecast::ModelPart part() const override { return range_; }
  std::vector<forecast::Tensor> OwnTensors() const override;
  std::uint32_t sharing_ranks() const override {
    return static_cast<std::uint32_t>(mesh_.sharing_ranks());
  }
  double held_micro_batches() const override { return in_flight_ - 1; }
  forecast::Saved SavedOf(forecast::Operator part) const override;
  std::uint64_t WorkspaceOf(forecast::Operator op, forecast::PassDirection turn) const override;
  double SecondsOf(forecast::Operator op, forecast::PassDirection turn) const override;

  double ComputeSecondsOf(forecast::Operator op, forecast::PassDirection turn) const;
  // The time of the weight gradients in a backward pass: its products take as long as the
  // forward's.
  double WeightSecondsOf(forecast::Operator op) const;
  // The bytes kept for weight gradients that are computed later than the input's gradient: the
  // inputs of the matrices, and the gradients of their outputs.
  std::uint64_t LaterBytesOf(forecast::Operator op) const;
  // The bytes that a rank receives from those of its grid and its sequence.
  double ReceivedBytesOf(forecast::Operator op, forecast::PassDirection turn) const;
  // The bytes that a stage sends to the next one for a micro-batch.
  double BoundaryBytes() const;

 private:
  struct Exchanged {
    double bytes = 0;
    double hidden_seconds = 0;  // beside products
    double waited_seconds = 0;
  };
  Exchanged ExchangedOf(forecast::Operator op, forecast::PassDirection turn) const;
  bool Rings() const { return mesh_.sequence > 1 && mesh_.sequence_mode == SequenceMode::kRing; }
  std::uint64_t RingBytes(forecast::Operator op, forecast::PassDirection turn) const;
  std::vector<Exchange> EmbeddingExchanges() const;
  double LinearOperations(forecast::Operator op) const;
  double RingSeconds(forecast::Operator op, forecast::PassDirection turn,
                     double travel_seconds) const;
  double KeyElements() const;
  std::uint64_t ScratchBytes(forecast::Operator op) const;
  double OperationsPerSecond() const;
  forecast::Tensor Cut(forecast::Tensor tensor) const;

  const forecast::Model& model_;
  const forecast::Job& job_;
  const MeshSpec mesh_;
  const forecast::ModelPart range_;
  const double in_flight_;
  const collectives::TensorGrid grid_;
  forecast::Batch part_;  // job.batch with this rank's slice of each sequence
  // The share of whole matrices that a rank has.
  double stream_share_ = 1, wide_share_ = 1, weight_share_ = 1;
  double multiplied_share_ = 1;  // the share of W that a rank's products use
};

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_MESH_RANK_WORK_H_
