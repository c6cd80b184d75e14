#include "training/engines/shared_table.h"

#include <algorithm>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 20;

}  // namespace

// Calls a function with each run of [first, first + count) that is in this rank's shard: where it
// begins, and how long it is.
template <typename Call>
absl::Status SharedTable::ForShard(uint64_t first, uint64_t count, const Call& call) {
  for (const zero::ShardRange& range : engine_->ShardOf(id_)) {
    const uint64_t begin = std::max(first, range.offset);
    const uint64_t end = std::min(first + count, range.offset + range.elements);
    if (begin < end) GEMINID_RETURN_IF_ERROR(call(begin, end - begin));
  }
  return absl::OkStatus();
}

// The engines cut the table differently, so the whole of it is added up: of each element two ranks
// have a number, and the others zero, which changes no bit of the sum.
absl::StatusOr<double> SharedTable::SumGradients() {
  auto room = collectives::FloatBlock::Allocate(memory_, "the gradients of a table at both ends",
                                                std::min(kPieceElements, elements_));
  if (!room.ok()) return collectives::TellIfRefused(*ends_, room.status());
  double squares = 0;
  for (uint64_t first = 0; first < elements_; first += kPieceElements) {
    const uint64_t count = std::min(kPieceElements, elements_ - first);
    GEMINID_RETURN_IF_ERROR(AddPiece(first, room->all().first(count), &squares));
  }
  return squares;
}

absl::Status SharedTable::AddPiece(uint64_t first, std::span<float> piece, double* squares) {
  std::ranges::fill(piece, 0.0F);
  const auto run = [&](uint64_t begin, uint64_t elements) {
    return piece.subspan(begin - first, elements);
  };
  GEMINID_RETURN_IF_ERROR(ForShard(first, piece.size(), [&](uint64_t begin, uint64_t elements) {
    return engine_->ReadGradient(id_, begin, run(begin, elements));
  }));
  GEMINID_RETURN_IF_ERROR(ends_->AllReduce(piece, piece, collectives::ReduceOp::kSum));
  return ForShard(first, piece.size(), [&](uint64_t begin, uint64_t elements) {
    absl::Status status = engine_->WriteGradient(id_, begin, run(begin, elements));
    // As it is kept: it may have been rounded.
    if (status.ok()) status = engine_->ReadGradient(id_, begin, run(begin, elements));
    for (const float value : run(begin, elements)) *squares += double{value} * value;
    return status;
  });
}

}  // namespace geminid::trainer
