#include "collectives/sequence_parallel/head_exchange.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

// Calls copy(at whole, at part, elements) for the runs of elements that part `rank` shares with a
// tensor that is cut along heads (`tokens` of it per batch entry) or along tokens.
template <class Copy>
void ForHeadsOf(const HeadsShape& shape, size_t ranks, size_t rank, const Copy& copy) {
  const size_t own = shape.heads / ranks * shape.head_dim;
  const size_t rows = shape.batch * (shape.sequence / ranks);
  for (size_t row = 0; row < rows; ++row) {
    copy((row * ranks + rank) * own, row * own, own);
  }
}

template <class Copy>
void ForTokensOf(const HeadsShape& shape, size_t ranks, size_t rank, const Copy& copy) {
  const size_t run = shape.sequence / ranks * (shape.heads / ranks) * shape.head_dim;
  for (size_t entry = 0; entry < shape.batch; ++entry) {
    copy((entry * ranks + rank) * run, entry * run, run);
  }
}

absl::Status CheckDivisible(const char* what, size_t size, size_t ranks) {
  if (size > 0 && size % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%d %s cannot be cut over %d ranks of the sequence; take as many ranks as divide them", size,
      what, ranks));
}

}  // namespace

absl::StatusOr<HeadExchange> HeadExchange::Make(const HeadsShape& shape, Communicator& ranks) {
  const auto count = static_cast<size_t>(ranks.WorldSize());
  GEMINID_RETURN_IF_ERROR(CheckDivisible("tokens", shape.sequence, count));
  GEMINID_RETURN_IF_ERROR(CheckDivisible("heads", shape.heads, count));
  return HeadExchange(shape, ranks);
}

HeadExchange::HeadExchange(const HeadsShape& shape, Communicator& ranks)
    : shape_(shape), ranks_(&ranks) {
  for (std::vector<float>& part : parts_) {
    part.resize(shape.elements() / static_cast<size_t>(ranks.WorldSize()));
  }
}

absl::Status HeadExchange::CheckSizes(size_t in, size_t out) const {
  if (in == part_elements() && out == part_elements()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("an exchange of heads from %d to %d elements; a rank's part has %d", in, out,
                      part_elements()));
}

absl::Status HeadExchange::ToHeads(std::span<const float> tokens, std::span<float> heads) {
  GEMINID_RETURN_IF_ERROR(CheckSizes(tokens.size(), heads.size()));
  const auto ranks = static_cast<size_t>(ranks_->WorldSize());
  const size_t each = part_elements() / ranks;
  for (size_t rank = 0; rank < ranks; ++rank) {
    ForHeadsOf(shape_, ranks, rank, [&](size_t whole, size_t part, size_t count) {
      std::copy_n(&tokens[whole], count, &parts_[0][rank * each + part]);
    });
  }
  GEMINID_RETURN_IF_ERROR(ranks_->AllToAll(parts_[0], parts_[1]));
  for (size_t rank = 0; rank < ranks; ++rank) {
    ForTokensOf(shape_, ranks, rank, [&](size_t whole, size_t part, size_t count) {
      std::copy_n(&parts_[1][rank * each + part], count, &heads[whole]);
    });
  }
  return absl::OkStatus();
}

absl::Status HeadExchange::ToTokens(std::span<const float> heads, std::span<float> tokens) {
  GEMINID_RETURN_IF_ERROR(CheckSizes(heads.size(), tokens.size()));
  const auto ranks = static_cast<size_t>(ranks_->WorldSize());
  const size_t each = part_elements() / ranks;
  for (size_t rank = 0; rank < ranks; ++rank) {
    ForTokensOf(shape_, ranks, rank, [&](size_t whole, size_t part, size_t count) {
      std::copy_n(&heads[whole], count, &parts_[0][rank * each + part]);
    });
  }
  GEMINID_RETURN_IF_ERROR(ranks_->AllToAll(parts_[0], parts_[1]));
  for (size_t rank = 0; rank < ranks; ++rank) {
    ForHeadsOf(shape_, ranks, rank, [&](size_t whole, size_t part, size_t count) {
      std::copy_n(&parts_[1][rank * each + part], count, &tokens[whole]);
    });
  }
  return absl::OkStatus();
}

}  // namespace geminid::collectives
