// Moves the rows of tokens to the ranks whose experts compute them, and back, by all-to-alls. The
// routing determines the length of each part.
#ifndef GEMINID_TRAINING_NN_PARALLEL_EXPERTS_ROW_EXCHANGE_H_
#define GEMINID_TRAINING_NN_PARALLEL_EXPERTS_ROW_EXCHANGE_H_

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "training/nn/parallel/experts/routing.h"
#include "training/nn/parallel/memory.h"

namespace geminid::collectives {

// INVALID_ARGUMENT if the number of ranks does not divide the number of experts.
absl::Status CheckSpread(size_t experts, size_t ranks);

// Rank r of P has experts [r E / P, (r + 1) E / P) of E. Rows are fp32, of one width.
//
//   at tokens    by expert, then by token: Routing::rows of this rank's tokens
//   at experts   of this rank's experts: by expert, then by the rank of the token, then by token
//
// So an expert gets the same rows, in the same order, as if one rank had all tokens. ToExperts and
// ToTokens are each other's inverse and gradient. For one micro-batch. One thread at a time.
class RowExchange {
 public:
  // Tells the ranks the number of rows of each expert, by an all-to-all of E / P counts per rank.
  // INVALID_ARGUMENT like CheckSpread. `ranks` outlives the exchange.
  static absl::StatusOr<RowExchange> Make(const Routing& routing, Communicator& ranks);

  // The experts and rows of this rank.
  size_t experts() const { return first_.size() - 1; }
  size_t rows_at_tokens() const { return sent_.back(); }
  size_t rows_at_experts() const { return first_.back(); }
  // This rank's expert e has rows [FirstOf(e), FirstOf(e + 1)) at experts.
  size_t FirstOf(size_t expert) const { return first_[expert]; }

  // Takes a buffer of at_experts' size from `memory`. If that is refused, returns
  // RESOURCE_EXHAUSTED and tells the other ranks.
  absl::Status ToExperts(size_t width, std::span<const float> at_tokens,
                         std::span<float> at_experts, Memory& memory = HeapMemory());
  absl::Status ToTokens(size_t width, std::span<const float> at_experts, std::span<float> at_tokens,
                        Memory& memory = HeapMemory());

 private:
  explicit RowExchange(Communicator& ranks) : ranks_(&ranks) {}
  absl::Status CheckSizes(size_t width, size_t at_tokens, size_t at_experts) const;
  // The buffer of rows sorted by rank, as they are sent and received.
  absl::StatusOr<FloatBlock> TakeStaged(size_t elements, Memory& memory) const;
  // Calls copy(row by rank, row by expert, rows) for each run of rows at experts.
  template <typename Copy>
  void ForRuns(Copy copy) const;

  Communicator* ranks_;
  std::vector<size_t> sent_;  // where the rows for each rank begin at tokens, then their number
  // Where the rows from each rank begin in the buffer, then their number.
  std::vector<size_t> received_;
  std::vector<size_t> counts_;  // [ranks, experts]: the numbers of received rows
  std::vector<size_t> first_;   // where each expert's rows begin, then their number
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_EXPERTS_ROW_EXCHANGE_H_
