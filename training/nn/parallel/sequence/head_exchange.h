// Exchanges a partition of the tokens for a partition of the heads, by one all-to-all
// (DeepSpeed-Ulysses, arXiv:2309.14509). Attention needs all tokens of a head, and all other
// operators need all heads of a token.
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_HEAD_EXCHANGE_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_HEAD_EXCHANGE_H_

#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "training/nn/parallel/memory.h"

namespace geminid::collectives {

// The shape of the whole tensor, [batch, sequence, heads, head_dim].
struct HeadsShape {
  size_t batch = 0;
  size_t sequence = 0;
  size_t heads = 0;
  size_t head_dim = 0;
  size_t elements() const { return batch * sequence * heads * head_dim; }
};

// Rank r of P has the r-th of P equal parts of the sequence, or of the heads, of every batch entry.
// ToHeads and ToTokens are each other's inverse and gradient. Each receives (P-1)/P of a rank's
// part and allocates twice a rank's part while it runs. If that is refused, it returns
// RESOURCE_EXHAUSTED and tells the other ranks. One thread at a time.
class HeadExchange {
 public:
  // INVALID_ARGUMENT if P does not divide the sequence or the heads; the message gives divisors.
  // `ranks` outlives the exchange.
  static absl::StatusOr<HeadExchange> Make(const HeadsShape& shape, Communicator& ranks);

  const HeadsShape& shape() const { return shape_; }
  // The elements of one rank, before and after an exchange.
  size_t part_elements() const {
    return shape_.elements() / static_cast<size_t>(ranks_->WorldSize());
  }

  // tokens [batch, sequence / P, heads, head_dim] -> heads [batch, sequence, heads / P, head_dim].
  absl::Status ToHeads(std::span<const float> tokens, std::span<float> heads,
                       Memory& memory = HeapMemory());
  absl::Status ToTokens(std::span<const float> heads, std::span<float> tokens,
                        Memory& memory = HeapMemory());

 private:
  HeadExchange(const HeadsShape& shape, Communicator& ranks) : shape_(shape), ranks_(&ranks) {}

  // Calls a function with each run of elements that a rank's part shares with the tensor: where the
  // run begins in both, and its length.
  using Runs = void (*)(const HeadsShape& shape, size_t ranks, size_t rank,
                        absl::FunctionRef<void(size_t whole, size_t part, size_t elements)> copy);
  absl::Status Exchange(std::span<const float> in, Runs of_in, std::span<float> out, Runs of_out,
                        Memory& memory);
  absl::Status CheckSizes(size_t in, size_t out) const;

  HeadsShape shape_;
  Communicator* ranks_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_HEAD_EXCHANGE_H_
