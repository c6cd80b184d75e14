#include "tools/trainer/expert_copies.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 20;

}  // namespace

ExpertCopies::ExpertCopies(std::vector<zero::ParameterId> copied, zero::Engine* engine,
                           collectives::Communicator* ranks)
    : copied_(std::move(copied)), engine_(engine), ranks_(ranks) {}

absl::StatusOr<std::unique_ptr<ExpertCopies>> ExpertCopies::Create(
    std::vector<zero::ParameterId> copied, zero::Engine* engine, collectives::Communicator* ranks) {
  std::unique_ptr<ExpertCopies> copies(new ExpertCopies(std::move(copied), engine, ranks));
  GEMINID_RETURN_IF_ERROR(copies->CheckCuts());
  return copies;
}

absl::Status ExpertCopies::CheckCuts() const {
  std::vector<int64_t> shards;
  for (const zero::ParameterId id : copied_) {
    for (const zero::ShardRange& range : engine_->ShardOf(id)) {
      shards.push_back(static_cast<int64_t>(range.offset));
      shards.push_back(static_cast<int64_t>(range.elements));
    }
  }
  std::vector<int64_t> count = {static_cast<int64_t>(shards.size())}, counts(1);
  GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(count, counts, collectives::ReduceOp::kMax));
  std::vector<int64_t> most(shards.size());
  const bool as_many = counts[0] == count[0];
  if (as_many && !shards.empty()) {
    GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(shards, most, collectives::ReduceOp::kMax));
  }
  if (as_many && most == shards) return absl::OkStatus();
  return absl::InternalError("engines of equally many experts cut what they share differently");
}

absl::StatusOr<double> ExpertCopies::AddUp() {
  double squares = 0;
  std::vector<float> piece;
  for (const zero::ParameterId id : copied_) {
    for (const zero::ShardRange& range : engine_->ShardOf(id)) {
      for (uint64_t done = 0; done < range.elements; done += kPieceElements) {
        piece.resize(std::min(kPieceElements, range.elements - done));
        const uint64_t at = range.offset + done;
        GEMINID_RETURN_IF_ERROR(engine_->ReadGradient(id, at, piece));
        GEMINID_RETURN_IF_ERROR(ranks_->AllReduce(piece, piece, collectives::ReduceOp::kSum,
                                                  {.scale = 1.0 / ranks_->WorldSize()}));
        GEMINID_RETURN_IF_ERROR(engine_->WriteGradient(id, at, piece));
        // As it is kept: it may have been rounded.
        GEMINID_RETURN_IF_ERROR(engine_->ReadGradient(id, at, piece));
        for (const float value : piece) squares += double{value} * value;
      }
    }
  }
  return ranks_->Rank() == 0 ? 0 : squares;
}

}  // namespace geminid::trainer
