// Moves the rows of tokens to the ranks whose experts compute them, and back: all-to-alls whose
// parts are as long as the routing says.
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

// INVALID_ARGUMENT where the ranks do not divide the experts.
absl::Status CheckSpread(size_t experts, size_t ranks);

// Rank r of P has experts [r E / P, (r + 1) E / P) of E. Rows are fp32, of one width.
//
//   at tokens    by expert, then by token: Routing::rows of this rank's tokens
//   at experts   of this rank's experts: by expert, then by the rank of the token, then by token
//
// So an expert sees the rows that it would see if one rank had all tokens, in that order. Each way
// is the other's inverse, and the gradient of it. Of one micro-batch. One thread at a time.
class RowExchange {
 public:
  // Tells the ranks how many rows each expert gets, by an all-to-all of E / P counts per rank.
  // INVALID_ARGUMENT as CheckSpread. `ranks` outlives the exchange.
  static absl::StatusOr<RowExchange> Make(const Routing& routing, Communicator& ranks);

  // Of this rank.
  size_t experts() const { return first_.size() - 1; }
  size_t rows_at_tokens() const { return sent_.back(); }
  size_t rows_at_experts() const { return first_.back(); }
  // Rows [FirstOf(e), FirstOf(e + 1)) at experts are of expert e of this rank's.
  size_t FirstOf(size_t expert) const { return first_[expert]; }

  // `memory` is for as much as is at experts. RESOURCE_EXHAUSTED where that is refused, which the
  // other ranks are told.
  absl::Status ToExperts(size_t width, std::span<const float> at_tokens,
                         std::span<float> at_experts, Memory& memory = HeapMemory());
  absl::Status ToTokens(size_t width, std::span<const float> at_experts, std::span<float> at_tokens,
                        Memory& memory = HeapMemory());

 private:
  explicit RowExchange(Communicator& ranks) : ranks_(&ranks) {}
  absl::Status CheckSizes(size_t width, size_t at_tokens, size_t at_experts) const;
  // By rank: as they come and go.
  absl::StatusOr<FloatBlock> TakeStaged(size_t elements, Memory& memory) const;
  // Calls copy(row by rank, row by expert, rows) for each run of rows at experts.
  template <typename Copy>
  void ForRuns(Copy copy) const;

  Communicator* ranks_;
  std::vector<size_t> sent_;      // where the rows for each rank begin at tokens, and their number
  std::vector<size_t> received_;  // where those from each rank begin, as they come
  std::vector<size_t> counts_;    // [ranks, experts] of these
  std::vector<size_t> first_;     // of each expert, and their number
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_EXPERTS_ROW_EXCHANGE_H_
