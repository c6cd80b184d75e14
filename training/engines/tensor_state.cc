#include "training/engines/tensor_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

using zero::ParameterId;
using zero::ShardRange;
using zero::StateKind;

// Consecutive elements of a block that are consecutive in a parameter, too.
struct Run {
  ParameterId whole{};
  uint64_t whole_first = 0;
  uint64_t block_first = 0;
  uint64_t elements = 0;
};

// As few rows as there are: those that lie one after the other on both sides are one.
BlockRectangle Merged(BlockRectangle piece) {
  if (piece.columns != piece.whole_stride || piece.columns != piece.block_stride) return piece;
  piece.columns *= piece.rows;
  piece.rows = 1;
  return piece;
}

// Calls a function with the runs of `piece` that are in [first, first + count) of the block.
template <typename Call>
absl::Status ForBlockRange(const BlockRectangle& given, uint64_t first, uint64_t count,
                           const Call& call) {
  const BlockRectangle piece = Merged(given);
  const uint64_t end = first + count;
  uint64_t row = 0;
  if (piece.block_stride > 0 && first > piece.block_first + piece.columns) {
    row = (first - piece.block_first - piece.columns) / piece.block_stride;
  }
  for (; row < piece.rows; ++row) {
    const uint64_t begins = piece.block_first + row * piece.block_stride;
    if (begins >= end) break;
    const uint64_t from = std::max(first, begins);
    const uint64_t to = std::min(end, begins + piece.columns);
    if (from >= to) continue;
    GEMINID_RETURN_IF_ERROR(
        call(Run{piece.whole, piece.whole_first + row * piece.whole_stride + (from - begins), from,
                 to - from}));
  }
  return absl::OkStatus();
}

// The same, of the parameter.
template <typename Call>
absl::Status ForWholeRange(const BlockRectangle& piece, uint64_t first, uint64_t count,
                           const Call& call) {
  BlockRectangle other = piece;  // with the sides exchanged
  std::swap(other.whole_first, other.block_first);
  std::swap(other.whole_stride, other.block_stride);
  return ForBlockRange(other, first, count, [&](Run run) {
    std::swap(run.whole_first, run.block_first);
    return call(run);
  });
}

// Passes on what this rank keeps, as parts of the model's parameters.
class PieceSink final : public zero::SnapshotSink {
 public:
  PieceSink(std::shared_ptr<zero::SnapshotSink> sink, const TensorParameters& blocks)
      : sink_(std::move(sink)), blocks_(blocks) {}

  absl::Status Write(ParameterId id, StateKind kind, uint64_t offset,
                     std::span<const float> values) override {
    const TensorBlock& block = blocks_.blocks[static_cast<size_t>(id)];
    if (!block.keeps) return absl::OkStatus();
    for (const BlockRectangle& piece : block.pieces) {
      GEMINID_RETURN_IF_ERROR(ForBlockRange(piece, offset, values.size(), [&](const Run& run) {
        return sink_->Write(run.whole, kind, run.whole_first,
                            values.subspan(run.block_first - offset, run.elements));
      }));
    }
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<zero::SnapshotSink> sink_;
  const TensorParameters& blocks_;
};

}  // namespace

TensorState::TensorState(const ModelConfig& config, std::vector<TensorParameters> blocks,
                         zero::ModelState* inner, collectives::Communicator* ranks)
    : specs_(MakeParameters(config).specs),
      blocks_(std::move(blocks)),
      block_of_(specs_.size()),
      inner_(inner),
      ranks_(ranks) {
  for (uint32_t block = 0; block < Mine().blocks.size(); ++block) {
    for (const ParameterId id : Mine().blocks[block].whole) {
      block_of_[static_cast<size_t>(id)] = ParameterId{block};
    }
  }
}

absl::Status TensorState::Initialize(const Fill& fill) {
  return inner_->Initialize([&](ParameterId id, std::span<float> values) -> absl::Status {
    const TensorBlock& block = Mine().blocks[static_cast<size_t>(id)];
    std::ranges::fill(values, 0.0F);
    for (const ParameterId whole : block.whole) {
      std::vector<float> all(specs_[static_cast<size_t>(whole)].elements());
      GEMINID_RETURN_IF_ERROR(fill(whole, all));
      for (const BlockRectangle& piece : block.pieces) {
        if (piece.whole != whole) continue;
        (void)ForBlockRange(piece, 0, values.size(), [&](const Run& run) {
          const std::span<const float> from = std::span(all).subspan(run.whole_first, run.elements);
          std::ranges::copy(from, values.subspan(run.block_first).begin());
          return absl::OkStatus();
        });
      }
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<float>> TensorState::ReadParameter(ParameterId id) {
  const ParameterId block = BlockOf(id);
  GEMINID_ASSIGN_OR_RETURN(const std::vector<float> mine, inner_->ReadParameter(block));
  const auto count = static_cast<size_t>(ranks_->WorldSize());
  std::vector<float> gathered(count * mine.size());
  GEMINID_RETURN_IF_ERROR(ranks_->AllGather(mine, gathered));
  std::vector<float> values(specs_[static_cast<size_t>(id)].elements());
  for (size_t rank = 0; rank < count; ++rank) {
    const auto theirs = std::span(gathered).subspan(rank * mine.size(), mine.size());
    for (const BlockRectangle& piece : blocks_[rank].blocks[static_cast<size_t>(block)].pieces) {
      if (piece.whole != id) continue;
      GEMINID_RETURN_IF_ERROR(ForBlockRange(piece, 0, theirs.size(), [&](const Run& run) {
        std::ranges::copy(theirs.subspan(run.block_first, run.elements),
                          std::span(values).subspan(run.whole_first).begin());
        return absl::OkStatus();
      }));
    }
  }
  return values;
}

std::vector<ShardRange> TensorState::ShardOf(ParameterId id) const {
  const ParameterId block = BlockOf(id);
  std::vector<ShardRange> found;
  for (const ShardRange& shard : inner_->ShardOf(block)) {
    for (const BlockRectangle& piece : Mine().blocks[static_cast<size_t>(block)].pieces) {
      if (piece.whole != id) continue;
      (void)ForBlockRange(piece, shard.offset, shard.elements, [&](const Run& run) {
        found.push_back({run.whole_first, run.elements});
        return absl::OkStatus();
      });
    }
  }
  std::ranges::sort(found, {}, &ShardRange::offset);
  std::vector<ShardRange> ranges;
  for (const ShardRange& range : found) {
    const bool goes_on =
        !ranges.empty() && ranges.back().offset + ranges.back().elements == range.offset;
    if (goes_on) {
      ranges.back().elements += range.elements;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

bool TensorState::HasState(ParameterId id, StateKind kind) const {
  return inner_->HasState(BlockOf(id), kind);
}

// All of them in this rank's shard, or none is touched.
absl::StatusOr<std::vector<TensorState::Elements>> TensorState::Here(ParameterId id,
                                                                     uint64_t offset,
                                                                     uint64_t count) const {
  const ParameterId block = BlockOf(id);
  const std::vector<ShardRange> shards = inner_->ShardOf(block);
  std::vector<Elements> here;
  uint64_t found = 0;
  for (const BlockRectangle& piece : Mine().blocks[static_cast<size_t>(block)].pieces) {
    if (piece.whole != id) continue;
    (void)ForWholeRange(piece, offset, count, [&](const Run& run) {
      for (const ShardRange& shard : shards) {
        const uint64_t from = std::max(run.block_first, shard.offset);
        const uint64_t to = std::min(run.block_first + run.elements, shard.offset + shard.elements);
        if (from >= to) continue;
        here.push_back({from, run.whole_first - offset + (from - run.block_first), to - from});
        found += to - from;
      }
      return absl::OkStatus();
    });
  }
  if (found == count) return here;
  return absl::InvalidArgumentError(absl::StrCat(
      "elements ", offset, " to ", offset + count, " of '", specs_[static_cast<size_t>(id)].name,
      "' are not all in this rank's shard; ShardOf returns the shard"));
}

absl::Status TensorState::ReadShard(ParameterId id, StateKind kind, uint64_t offset,
                                    std::span<float> values) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<Elements> here, Here(id, offset, values.size()));
  for (const Elements& part : here) {
    GEMINID_RETURN_IF_ERROR(inner_->ReadShard(BlockOf(id), kind, part.in_block,
                                              values.subspan(part.in_values, part.count)));
  }
  return absl::OkStatus();
}

absl::Status TensorState::WriteShard(ParameterId id, StateKind kind, uint64_t offset,
                                     std::span<const float> values) {
  if (values.empty()) return inner_->WriteShard(BlockOf(id), kind, 0, values);
  GEMINID_ASSIGN_OR_RETURN(const std::vector<Elements> here, Here(id, offset, values.size()));
  for (const Elements& part : here) {
    GEMINID_RETURN_IF_ERROR(inner_->WriteShard(BlockOf(id), kind, part.in_block,
                                               values.subspan(part.in_values, part.count)));
  }
  return absl::OkStatus();
}

absl::Status TensorState::Restore(const zero::Progress& progress) {
  return inner_->Restore(progress);
}

absl::StatusOr<zero::Progress> TensorState::GetProgress() { return inner_->GetProgress(); }

absl::Status TensorState::StartSnapshot(std::shared_ptr<zero::SnapshotSink> sink) {
  return inner_->StartSnapshot(std::make_shared<PieceSink>(std::move(sink), Mine()));
}

absl::Status TensorState::WaitSnapshot() { return inner_->WaitSnapshot(); }

}  // namespace geminid::trainer
