#include "training/engines/expert_copies.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 20;

}  // namespace

ExpertCopies::ExpertCopies(std::vector<zero::ParameterId> copied, zero::Engine* engine,
                           collectives::Communicator* ranks, collectives::Memory& memory)
    : copied_(std::move(copied)), engine_(engine), ranks_(ranks), memory_(memory) {}

absl::StatusOr<std::unique_ptr<ExpertCopies>> ExpertCopies::Create(
    std::vector<zero::ParameterId> copied, zero::Engine* engine, collectives::Communicator* ranks,
    collectives::Memory& memory) {
  std::unique_ptr<ExpertCopies> copies(new ExpertCopies(std::move(copied), engine, ranks, memory));
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
  return absl::InternalError(
      "engines with equally many experts shard their common parameters differently");
}

absl::StatusOr<double> ExpertCopies::AddUp() {
  uint64_t most = 0;
  for (const zero::ParameterId id : copied_) {
    for (const zero::ShardRange& range : engine_->ShardOf(id)) {
      most = std::max(most, std::min(kPieceElements, range.elements));
    }
  }
  auto room = collectives::FloatBlock::Allocate(memory_, "gradients of copied parameters", most);
  if (!room.ok()) return collectives::TellIfRefused(*ranks_, room.status());
  double squares = 0;
  for (const zero::ParameterId id : copied_) {
    for (const zero::ShardRange& range : engine_->ShardOf(id)) {
      for (uint64_t done = 0; done < range.elements; done += kPieceElements) {
        const std::span<float> piece =
            room->all().first(std::min(kPieceElements, range.elements - done));
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
