#include "training/nn/parallel/tensor/parallel_embedding.h"

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "training/nn/parallel/tensor/block_size.h"

namespace geminid::collectives {
namespace {

struct TableLayout {
  Axes words, features;
  Axes looked_up;  // the tokens whose words a rank looks up
  GridAxis summed;
};

TableLayout LayoutOfTable(TensorMode mode) {
  switch (mode) {
    case TensorMode::k1D:
    case TensorMode::k1DSequence:
      return {.words = {GridAxis::kColumn},
              .features = {},
              .looked_up = {},
              .summed = GridAxis::kColumn};
    case TensorMode::k2D:
    case TensorMode::k25D:
      return {.words = {GridAxis::kRow},
              .features = {GridAxis::kColumn},
              .looked_up = {GridAxis::kDepth},
              .summed = GridAxis::kRow};
    case TensorMode::k3D:
      return {.words = {GridAxis::kInput, GridAxis::kWeight},
              .features = {GridAxis::kOutput},
              .looked_up = {GridAxis::kWeight},
              .summed = GridAxis::kInput};
  }
  return {};
}

// The table rows in which a rank looks up. In 3D they include rows of other ranks along `weight`.
Range LookedUp(const TensorGrid& grid, const Range& words) {
  if (grid.mode() != TensorMode::k3D) return words;
  const size_t count = words.count * static_cast<size_t>(grid.side());
  return {words.begin / count * count, count};
}

}  // namespace

absl::StatusOr<EmbeddingBlocks> BlocksOf(const TensorGrid& grid, const EmbeddingShape& shape,
                                         int rank) {
  const TableLayout table = LayoutOfTable(grid.mode());
  const ActivationLayout y = LayoutOfX(grid.mode(), LinearRole::kFirst);
  EmbeddingBlocks blocks;
  GEMINID_ASSIGN_OR_RETURN(blocks.y.rows, PieceOf(grid, y.tokens, "tokens", shape.tokens, rank));
  GEMINID_ASSIGN_OR_RETURN(blocks.y.columns,
                           PieceOf(grid, y.features, "features", shape.hidden, rank));
  GEMINID_ASSIGN_OR_RETURN(blocks.ids,
                           PieceOf(grid, table.looked_up, "tokens", shape.tokens, rank));
  GEMINID_ASSIGN_OR_RETURN(
      blocks.table.rows,
      PieceOf(grid, table.words, "words", PaddedVocabulary(grid, shape.vocabulary), rank));
  blocks.table.columns = blocks.y.columns;
  return blocks;
}

absl::StatusOr<std::unique_ptr<ParallelEmbedding>> ParallelEmbedding::Make(
    TensorGroups& groups, const EmbeddingShape& shape, LinearScratch& scratch) {
  if (groups.grid().mode() == TensorMode::k1D) {
    return absl::InvalidArgumentError("in 1D the blocks of a table are a table of their own");
  }
  GEMINID_ASSIGN_OR_RETURN(const EmbeddingBlocks blocks,
                           BlocksOf(groups.grid(), shape, groups.rank()));
  return std::unique_ptr<ParallelEmbedding>(new ParallelEmbedding(groups, shape, blocks, scratch));
}

ParallelEmbedding::ParallelEmbedding(TensorGroups& groups, const EmbeddingShape& shape,
                                     const EmbeddingBlocks& blocks, LinearScratch& scratch)
    : groups_(groups),
      shape_(shape),
      blocks_(blocks),
      scratch_(scratch),
      words_(groups.Along(LayoutOfTable(groups.grid().mode()).summed)),
      gathered_(groups.grid().mode() == TensorMode::k3D ? &groups.Along(GridAxis::kWeight)
                                                        : nullptr),
      part_{.tokens = blocks.ids.count,
            .hidden = blocks.y.columns.count,
            .vocabulary = PaddedVocabulary(groups.grid(), shape.vocabulary),
            .first_row = LookedUp(groups.grid(), blocks.table.rows).begin,
            .rows = LookedUp(groups.grid(), blocks.table.rows).count} {}

absl::Status ParallelEmbedding::CheckIds(std::span<const int32_t> ids) const {
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("ids", ids.size(), blocks_.ids.count));
  if (!scratch_.math().on_host()) return absl::OkStatus();
  for (size_t token = 0; token < ids.size(); ++token) {
    if (ids[token] >= 0 && static_cast<size_t>(ids[token]) < shape_.vocabulary) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("token %d has the id %d; the vocabulary has %d words",
                        blocks_.ids.begin + token, ids[token], shape_.vocabulary));
  }
  return absl::OkStatus();
}

absl::StatusOr<ParallelEmbedding::Room> ParallelEmbedding::Take() {
  const size_t table = gathered_ == nullptr ? 0 : part_.rows * part_.hidden;
  Room room;
  GEMINID_ASSIGN_OR_RETURN(room.table,
                           groups_.OrTellRanks(scratch_.Take("a table gathered", table)));
  GEMINID_ASSIGN_OR_RETURN(room.y, groups_.OrTellRanks(scratch_.Take("output of a sharded table",
                                                                     part_.tokens * part_.hidden)));
  return room;
}

absl::Status ParallelEmbedding::Forward(std::span<const int32_t> ids, std::span<const float> table,
                                        std::span<float> y) {
  GEMINID_RETURN_IF_ERROR(CheckIds(ids));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("the table", table.size(), blocks_.table.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Y", y.size(), blocks_.y.elements()));
  GEMINID_ASSIGN_OR_RETURN(const Room room, Take());
  if (gathered_ != nullptr) {
    GEMINID_RETURN_IF_ERROR(gathered_->AllGather(table, room.table.all()));
    table = room.table.all();
  }
  const std::span<float> partial = room.y.all();
  GEMINID_RETURN_IF_ERROR(
      scratch_.math().EmbeddingForward(part_, ids.data(), table.data(), partial.data()));
  return words_.ReduceScatter(partial, y);
}

absl::Status ParallelEmbedding::Backward(std::span<const int32_t> ids, std::span<const float> dy,
                                         std::span<float> dtable) {
  GEMINID_RETURN_IF_ERROR(CheckIds(ids));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dY", dy.size(), blocks_.y.elements()));
  GEMINID_RETURN_IF_ERROR(
      CheckBlockSize("the table's gradient", dtable.size(), blocks_.table.elements()));
  GEMINID_ASSIGN_OR_RETURN(const Room room, Take());
  GEMINID_RETURN_IF_ERROR(words_.AllGather(dy, room.y.all()));
  dy = room.y.all();
  const std::span<float> partial = gathered_ == nullptr ? dtable : room.table.all();
  GEMINID_RETURN_IF_ERROR(TellIfRefused(
      groups_, scratch_.math().EmbeddingBackward(part_, ids.data(), dy.data(), partial.data())));
  if (gathered_ != nullptr) return gathered_->ReduceScatter(partial, dtable);
  if (groups_.grid().depth() == 1) return absl::OkStatus();
  return groups_.AddAlong({GridAxis::kDepth}, dtable);
}

}  // namespace geminid::collectives
