#include "training/nn/parallel/experts/row_exchange.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

// The part of a buffer for each rank, by the row at which it begins.
struct Parts {
  const std::vector<size_t>& first;
  size_t width;
  std::pair<size_t, size_t> Of(size_t rank) const {
    return {first[rank] * width, (first[rank + 1] - first[rank]) * width};
  }
};

// Sends part q of `in` to rank q, and receives part q of `out` from rank q. In each round a rank
// has one partner to send to and one to receive from.
absl::Status ExchangeParts(Communicator& ranks, std::span<const float> in, const Parts& in_parts,
                           std::span<float> out, const Parts& out_parts) {
  const int size = ranks.WorldSize();
  const auto own = static_cast<size_t>(ranks.Rank());
  const auto [own_in, count] = in_parts.Of(own);
  std::copy_n(in.begin() + static_cast<ptrdiff_t>(own_in), count,
              out.begin() + static_cast<ptrdiff_t>(out_parts.Of(own).first));
  for (int round = 1; round < size; ++round) {
    const int to = (ranks.Rank() + round) % size;
    const int from = (ranks.Rank() + size - round) % size;
    const auto [send_at, sends] = in_parts.Of(static_cast<size_t>(to));
    const auto [receive_at, receives] = out_parts.Of(static_cast<size_t>(from));
    GEMINID_RETURN_IF_ERROR(
        ranks.SendReceive(in.subspan(send_at, sends), to, out.subspan(receive_at, receives), from));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSpread(size_t experts, size_t ranks) {
  if (experts % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%d experts cannot be spread over %d ranks evenly; take as many ranks as divide them",
      experts, ranks));
}

absl::StatusOr<RowExchange> RowExchange::Make(const Routing& routing, Communicator& ranks) {
  const auto size = static_cast<size_t>(ranks.WorldSize());
  const size_t experts = routing.options.experts;
  GEMINID_RETURN_IF_ERROR(CheckSpread(experts, size));
  const size_t own = experts / size;
  std::vector<int64_t> mine(experts), theirs(experts);
  for (size_t e = 0; e < experts; ++e) mine[e] = static_cast<int64_t>(routing.RowsOf(e));
  GEMINID_RETURN_IF_ERROR(ranks.AllToAll(mine, theirs));

  RowExchange exchange(ranks);
  exchange.counts_.assign(theirs.begin(), theirs.end());
  exchange.sent_.assign(size + 1, 0);
  exchange.received_.assign(size + 1, 0);
  exchange.first_.assign(own + 1, 0);
  for (size_t rank = 0; rank < size; ++rank) {
    exchange.sent_[rank + 1] = routing.first[(rank + 1) * own];
    exchange.received_[rank + 1] = exchange.received_[rank];
    for (size_t e = 0; e < own; ++e) {
      exchange.received_[rank + 1] += exchange.counts_[rank * own + e];
      exchange.first_[e + 1] += exchange.counts_[rank * own + e];
    }
  }
  for (size_t e = 0; e < own; ++e) exchange.first_[e + 1] += exchange.first_[e];
  return exchange;
}

absl::Status RowExchange::CheckSizes(size_t width, size_t at_tokens, size_t at_experts) const {
  if (at_tokens == rows_at_tokens() * width && at_experts == rows_at_experts() * width) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "an exchange between %d elements at tokens and %d at experts; this rank has %d rows at "
      "tokens and %d at experts, of %d elements each",
      at_tokens, at_experts, rows_at_tokens(), rows_at_experts(), width));
}

template <typename Copy>
void RowExchange::ForRuns(Copy copy) const {
  const size_t own = experts();
  std::vector<size_t> next(first_.begin(), first_.end() - 1);
  size_t by_rank = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    copy(by_rank, next[i % own], counts_[i]);
    by_rank += counts_[i];
    next[i % own] += counts_[i];
  }
}

absl::StatusOr<FloatBlock> RowExchange::TakeStaged(size_t elements, Memory& memory) const {
  absl::StatusOr<FloatBlock> taken =
      FloatBlock::Allocate(memory, "rows of experts on their way", elements);
  (void)TellIfRefused(*ranks_, taken.status());
  return taken;
}

absl::Status RowExchange::ToExperts(size_t width, std::span<const float> at_tokens,
                                    std::span<float> at_experts, Memory& memory) {
  GEMINID_RETURN_IF_ERROR(CheckSizes(width, at_tokens.size(), at_experts.size()));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock staged, TakeStaged(at_experts.size(), memory));
  GEMINID_RETURN_IF_ERROR(
      ExchangeParts(*ranks_, at_tokens, {sent_, width}, staged.all(), {received_, width}));
  ForRuns([&](size_t by_rank, size_t by_expert, size_t rows) {
    std::copy_n(staged.data() + by_rank * width, rows * width,
                at_experts.data() + by_expert * width);
  });
  return absl::OkStatus();
}

absl::Status RowExchange::ToTokens(size_t width, std::span<const float> at_experts,
                                   std::span<float> at_tokens, Memory& memory) {
  GEMINID_RETURN_IF_ERROR(CheckSizes(width, at_tokens.size(), at_experts.size()));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock staged, TakeStaged(at_experts.size(), memory));
  ForRuns([&](size_t by_rank, size_t by_expert, size_t rows) {
    std::copy_n(at_experts.data() + by_expert * width, rows * width,
                staged.data() + by_rank * width);
  });
  return ExchangeParts(*ranks_, staged.all(), {received_, width}, at_tokens, {sent_, width});
}

}  // namespace geminid::collectives
