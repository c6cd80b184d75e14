// The token table that is also the output layer, in a pipeline. The first and the last stage each
// have a copy and compute one part of its gradient. Each applies the sum of both parts, so the
// copies stay equal.
#ifndef GEMINID_TRAINING_ENGINES_SHARED_TABLE_H_
#define GEMINID_TRAINING_ENGINES_SHARED_TABLE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/zero.h"
#include "training/nn/parallel/memory.h"

namespace geminid::trainer {

class SharedTable {
 public:
  // `ends`: the ranks of the two stages. `id`: the table in this rank's engine. `memory` has room
  // for a piece of the table. Engine and memory outlive this object.
  SharedTable(zero::Engine* engine, zero::ParameterId id, uint64_t elements,
              std::unique_ptr<collectives::Communicator> ends, collectives::Memory& memory)
      : engine_(engine), id_(id), elements_(elements), ends_(std::move(ends)), memory_(memory) {}

  // Gives both stages the sum of their gradients. Call it on all ranks of both, between
  // GradientNorm and Step. Returns the sum of the squares of this rank's shard of it.
  absl::StatusOr<double> SumGradients();

 private:
  absl::Status AddPiece(uint64_t first, std::span<float> piece, double* squares);
  template <typename Call>
  absl::Status ForShard(uint64_t first, uint64_t count, const Call& call);

  zero::Engine* const engine_;
  const zero::ParameterId id_;
  const uint64_t elements_;
  const std::unique_ptr<collectives::Communicator> ends_;
  collectives::Memory& memory_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_SHARED_TABLE_H_
