#include "training/nn/parallel/sequence/head_exchange.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

using CopyRun = absl::FunctionRef<void(size_t whole, size_t part, size_t elements)>;

// Calls `copy` for the runs of elements that part `rank` shares with this rank's tensor. The parts
// are heads here, and tokens in ForTokensOf.
void ForHeadsOf(const HeadsShape& shape, size_t ranks, size_t rank, CopyRun copy) {
  const size_t own = shape.heads / ranks * shape.head_dim;
  const size_t rows = shape.batch * (shape.sequence / ranks);
  for (size_t row = 0; row < rows; ++row) {
    copy((row * ranks + rank) * own, row * own, own);
  }
}

void ForTokensOf(const HeadsShape& shape, size_t ranks, size_t rank, CopyRun copy) {
  const size_t run = shape.sequence / ranks * (shape.heads / ranks) * shape.head_dim;
  for (size_t entry = 0; entry < shape.batch; ++entry) {
    copy((entry * ranks + rank) * run, entry * run, run);
  }
}

absl::Status CheckDivisible(const char* what, size_t size, size_t ranks) {
  if (size > 0 && size % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%d %s cannot be divided over %d ranks of the sequence; take a number of "
                      "ranks that divides them",
                      size, what, ranks));
}

}  // namespace

absl::StatusOr<HeadExchange> HeadExchange::Make(const HeadsShape& shape, Communicator& ranks) {
  const auto count = static_cast<size_t>(ranks.WorldSize());
  GEMINID_RETURN_IF_ERROR(CheckDivisible("tokens", shape.sequence, count));
  GEMINID_RETURN_IF_ERROR(CheckDivisible("heads", shape.heads, count));
  return HeadExchange(shape, ranks);
}

absl::Status HeadExchange::CheckSizes(size_t in, size_t out) const {
  if (in == part_elements() && out == part_elements()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("an exchange of heads from %d to %d elements; a rank's part has %d", in, out,
                      part_elements()));
}

absl::Status HeadExchange::ToHeads(std::span<const float> tokens, std::span<float> heads,
                                   Memory& memory) {
  return TellIfRefused(*ranks_, Exchange(tokens, ForHeadsOf, heads, ForTokensOf, memory));
}

absl::Status HeadExchange::ToTokens(std::span<const float> heads, std::span<float> tokens,
                                    Memory& memory) {
  return TellIfRefused(*ranks_, Exchange(heads, ForTokensOf, tokens, ForHeadsOf, memory));
}

absl::Status HeadExchange::Exchange(std::span<const float> in, Runs of_in, std::span<float> out,
                                    Runs of_out, Memory& memory) {
  GEMINID_RETURN_IF_ERROR(CheckSizes(in.size(), out.size()));
  constexpr char kWhat[] = "an exchange of heads";
  // The send buffer and the receive buffer, both sorted by rank.
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock there,
                           FloatBlock::Allocate(memory, kWhat, part_elements()));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock here,
                           FloatBlock::Allocate(memory, kWhat, part_elements()));
  const auto ranks = static_cast<size_t>(ranks_->WorldSize());
  const size_t each = part_elements() / ranks;
  for (size_t rank = 0; rank < ranks; ++rank) {
    of_in(shape_, ranks, rank, [&](size_t whole, size_t part, size_t count) {
      std::copy_n(&in[whole], count, there.data() + rank * each + part);
    });
  }
  GEMINID_RETURN_IF_ERROR(ranks_->AllToAll(there.all(), here.all()));
  for (size_t rank = 0; rank < ranks; ++rank) {
    of_out(shape_, ranks, rank, [&](size_t whole, size_t part, size_t count) {
      std::copy_n(here.data() + rank * each + part, count, &out[whole]);
    });
  }
  return absl::OkStatus();
}

}  // namespace geminid::collectives
