#include "collectives/sequence_parallel/head_swap.h"

#include <utility>

#include "base/status_macros.h"

namespace geminid::collectives {

absl::StatusOr<HeadExchange*> HeadSwap::ExchangeOf(const HeadsShape& whole) {
  const Key key = {whole.batch, whole.sequence, whole.heads, whole.head_dim};
  auto found = exchanges_.find(key);
  if (found == exchanges_.end()) {
    GEMINID_ASSIGN_OR_RETURN(HeadExchange made, HeadExchange::Make(whole, *ranks_));
    found = exchanges_.emplace(key, std::move(made)).first;
  }
  return &found->second;
}

absl::Status HeadSwap::ToHeads(const HeadsShape& whole, std::span<const float> pieces,
                               std::span<float> heads) {
  GEMINID_ASSIGN_OR_RETURN(HeadExchange* const exchange, ExchangeOf(whole));
  return exchange->ToHeads(pieces, heads);
}

absl::Status HeadSwap::ToPieces(const HeadsShape& whole, std::span<const float> heads,
                                std::span<float> pieces) {
  GEMINID_ASSIGN_OR_RETURN(HeadExchange* const exchange, ExchangeOf(whole));
  return exchange->ToTokens(heads, pieces);
}

}  // namespace geminid::collectives
