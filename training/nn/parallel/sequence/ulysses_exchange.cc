#include "training/nn/parallel/sequence/ulysses_exchange.h"

#include "base/status_macros.h"

namespace geminid::collectives {

absl::Status UlyssesExchange::ToHeads(const HeadsShape& whole, std::span<const float> pieces,
                                      std::span<float> heads, Memory& memory) {
  GEMINID_ASSIGN_OR_RETURN(HeadExchange exchange, HeadExchange::Make(whole, *ranks_));
  return exchange.ToHeads(pieces, heads, memory);
}

absl::Status UlyssesExchange::ToSlices(const HeadsShape& whole, std::span<const float> heads,
                                       std::span<float> pieces, Memory& memory) {
  GEMINID_ASSIGN_OR_RETURN(HeadExchange exchange, HeadExchange::Make(whole, *ranks_));
  return exchange.ToTokens(heads, pieces, memory);
}

}  // namespace geminid::collectives
