#include "training/nn/tensor_parameters.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "training/nn/parallel/tensor/fused_outputs.h"
#include "training/nn/parallel/tensor/parallel_embedding.h"
#include "training/nn/parallel/tensor/parallel_norm.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::trainer {
namespace {

using collectives::Block;
using collectives::FusedOutputs;
using collectives::LinearBlocks;
using collectives::LinearRole;
using collectives::Range;
using collectives::TensorGrid;

// Consecutive outputs of one section of a fused layer.
struct OutputRun {
  size_t section = 0;
  size_t output = 0;  // of the section
  size_t at = 0;      // in the block
  size_t count = 0;
};

// The runs of outputs in `range`. Output i of the layer is feature_of(i) of its sections, counted
// one section after another.
template <typename FeatureOf>
std::vector<OutputRun> RunsOf(const std::vector<LinearPlace>& sections, const Range& range,
                              const FeatureOf& feature_of) {
  std::vector<OutputRun> runs;
  for (size_t i = 0; i < range.count; ++i) {
    size_t output = feature_of(range.begin + i), section = 0;
    while (output >= sections[section].out) output -= sections[section++].out;
    if (!runs.empty()) {
      OutputRun& last = runs.back();
      if (last.section == section && last.output + last.count == output) {
        ++last.count;
        continue;
      }
    }
    runs.push_back({section, output, i, 1});
  }
  return runs;
}

class Builder {
 public:
  Builder(const ModelConfig& config, const ModelPart& part, const TensorGrid& grid, int rank)
      : config_(config), whole_(MakeParameters(config, part)), grid_(grid), rank_(rank) {
    made_.part = part;
  }

  absl::StatusOr<TensorParameters> Build() {
    if (made_.part.embeds) GEMINID_RETURN_IF_ERROR(Embedding());
    for (size_t layer = 0; layer < whole_.attention.size(); ++layer) {
      GEMINID_ASSIGN_OR_RETURN(TensorSublayer sublayer, Attention(whole_.attention[layer]));
      made_.attention.push_back(std::move(sublayer));
      const MlpPlaces& mlp = whole_.mlp[layer];
      std::vector<LinearPlace> first = {mlp.input};
      if (mlp.up) first.push_back(*mlp.up);
      GEMINID_ASSIGN_OR_RETURN(sublayer, Sublayer(mlp.norm, first, mlp.output));
      made_.mlp.push_back(std::move(sublayer));
    }
    if (made_.part.outputs) GEMINID_RETURN_IF_ERROR(Output());
    return std::move(made_);
  }

 private:
  // Any divisible number of tokens works, because no block of a parameter depends on it.
  size_t tokens() const { return static_cast<size_t>(grid_.ranks()); }

  ParameterId Add(std::vector<ParameterId> ids, std::vector<uint64_t> shape,
                  std::vector<BlockRectangle> pieces) {
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::vector<std::string> names;
    for (const ParameterId id : ids) names.push_back(whole_.specs[static_cast<size_t>(id)].name);
    ParameterSpec spec = whole_.specs[static_cast<size_t>(ids.front())];
    spec.name = absl::StrJoin(names, "+");
    spec.shape = {shape.begin(), shape.end()};
    made_.blocks.push_back(
        {.spec = std::move(spec), .whole = std::move(ids), .pieces = std::move(pieces)});
    return static_cast<ParameterId>(made_.blocks.size() - 1);
  }

  ParameterId AddVector(ParameterId id, const Range& range) {
    return Add({id}, {range.count},
               {{.whole = id, .rows = 1, .columns = range.count, .whole_first = range.begin}});
  }

  absl::StatusOr<NormPlace> Norm(const NormPlace& place) {
    const collectives::NormOptions options = {.tokens = tokens(), .hidden = config_.hidden};
    GEMINID_ASSIGN_OR_RETURN(const collectives::NormBlocks blocks,
                             collectives::BlocksOf(grid_, options, rank_));
    NormPlace norm;
    norm.gain = AddVector(place.gain, blocks.parameter);
    if (place.shift) norm.shift = AddVector(*place.shift, blocks.parameter);
    return norm;
  }

  // Adds a table of words and features. Words beyond the vocabulary are in no piece.
  ParameterId AddTable(ParameterId id, const Block& block, uint64_t words) {
    std::vector<BlockRectangle> pieces;
    const uint64_t end = std::min<uint64_t>(words, block.rows.begin + block.rows.count);
    if (end > block.rows.begin) {
      pieces.push_back({.whole = id,
                        .rows = end - block.rows.begin,
                        .columns = block.columns.count,
                        .whole_first = block.rows.begin * config_.hidden + block.columns.begin,
                        .whole_stride = config_.hidden,
                        .block_stride = block.columns.count});
    }
    return Add({id}, {block.rows.count, block.columns.count}, std::move(pieces));
  }

  absl::StatusOr<ParameterId> AddEmbedding(ParameterId id, uint64_t words) {
    const collectives::EmbeddingShape shape = {
        .tokens = tokens(), .vocabulary = words, .hidden = config_.hidden};
    GEMINID_ASSIGN_OR_RETURN(const collectives::EmbeddingBlocks blocks,
                             collectives::BlocksOf(grid_, shape, rank_));
    return AddTable(id, blocks.table, words);
  }

  absl::Status Embedding() {
    GEMINID_ASSIGN_OR_RETURN(made_.token_table,
                             AddEmbedding(whole_.token_table, config_.vocabulary));
    if (!whole_.position_table) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(made_.position_table,
                             AddEmbedding(*whole_.position_table, config_.position_table_rows()));
    return absl::OkStatus();
  }

  absl::Status Output() {
    GEMINID_ASSIGN_OR_RETURN(made_.final_norm, Norm(whole_.final_norm));
    if (config_.tied_output()) {
      if (!made_.part.embeds) {
        GEMINID_ASSIGN_OR_RETURN(made_.token_table,
                                 AddEmbedding(whole_.token_table, config_.vocabulary));
      }
      made_.output = made_.token_table;
      return absl::OkStatus();
    }
    const size_t words = PaddedVocabulary(grid_, config_.vocabulary);
    GEMINID_ASSIGN_OR_RETURN(
        const LinearBlocks blocks,
        collectives::BlocksOf(grid_, LinearRole::kFirst, {tokens(), config_.hidden, words}, rank_));
    made_.output = AddTable(whole_.output.weight, blocks.w, config_.vocabulary);
    return absl::OkStatus();
  }

  // Adds the matrix of one layer, or of several fused layers.
  ParameterId AddMatrix(const std::vector<LinearPlace>& sections,
                        const std::vector<OutputRun>& runs, const Block& block) {
    const uint64_t outs = block.rows.count, ins = block.columns.count;
    const bool out_in = sections.front().layout == Layout::kOutIn;
    std::vector<ParameterId> ids;
    for (const LinearPlace& place : sections) ids.push_back(place.weight);
    std::vector<BlockRectangle> pieces;
    for (const OutputRun& run : runs) {
      const LinearPlace& place = sections[run.section];
      const uint64_t output = place.first_output + run.output, input = block.columns.begin;
      pieces.push_back(
          {.whole = place.weight,
           .rows = out_in ? run.count : ins,
           .columns = out_in ? ins : run.count,
           .whole_first = out_in ? output * place.stride + input : input * place.stride + output,
           .whole_stride = place.stride,
           .block_first = out_in ? run.at * ins : run.at,
           .block_stride = out_in ? ins : outs});
    }
    return Add(std::move(ids),
               out_in ? std::vector<uint64_t>{outs, ins} : std::vector<uint64_t>{ins, outs},
               std::move(pieces));
  }

  std::optional<ParameterId> AddBias(const std::vector<LinearPlace>& sections,
                                     const std::vector<OutputRun>& runs, uint64_t count) {
    if (!sections.front().bias) return std::nullopt;
    std::vector<ParameterId> ids;
    for (const LinearPlace& place : sections) ids.push_back(*place.bias);
    std::vector<BlockRectangle> pieces;
    for (const OutputRun& run : runs) {
      const LinearPlace& place = sections[run.section];
      pieces.push_back({.whole = *place.bias,
                        .rows = 1,
                        .columns = run.count,
                        .whole_first = place.first_output + run.output,
                        .block_first = run.at});
    }
    return Add(std::move(ids), {count}, std::move(pieces));
  }

  absl::StatusOr<TensorSublayer> Attention(const AttentionPlaces& places) {
    const std::vector<LinearPlace> first =
        places.qkv ? std::vector{*places.qkv} : std::vector{places.q, places.k, places.v};
    GEMINID_ASSIGN_OR_RETURN(TensorSublayer sublayer, Sublayer(places.norm, first, places.output));
    sublayer.joins_heads = places.qkv.has_value();
    const auto norm_of_head = [&](const std::optional<NormPlace>& place) {
      std::optional<NormPlace> norm;
      if (!place) return norm;
      norm.emplace().gain = AddVector(place->gain, {0, config_.head_dim()});
      sublayer.all.push_back(norm->gain);
      return norm;
    };
    sublayer.q_norm = norm_of_head(places.q_norm);
    sublayer.k_norm = norm_of_head(places.k_norm);
    return sublayer;
  }

  absl::StatusOr<TensorSublayer> Sublayer(const NormPlace& norm,
                                          const std::vector<LinearPlace>& first,
                                          const LinearPlace& second) {
    const size_t begin = made_.blocks.size();
    TensorSublayer sublayer;
    sublayer.layout = second.layout;
    GEMINID_ASSIGN_OR_RETURN(sublayer.norm, Norm(norm));
    std::vector<size_t> sizes;
    size_t outputs = 0;
    for (const LinearPlace& place : first) outputs += sizes.emplace_back(place.out);
    GEMINID_ASSIGN_OR_RETURN(const FusedOutputs fused, FusedOutputs::Make(grid_, sizes));
    GEMINID_ASSIGN_OR_RETURN(const LinearBlocks one,
                             collectives::BlocksOf(grid_, LinearRole::kFirst,
                                                   {tokens(), config_.hidden, outputs}, rank_));
    const auto feature = [&fused](size_t output) { return fused.FeatureOf(output); };
    sublayer.w1 = AddMatrix(first, RunsOf(first, one.w.rows, feature), one.w);
    sublayer.b1 = AddBias(first, RunsOf(first, one.bias, feature), one.bias.count);
    GEMINID_ASSIGN_OR_RETURN(const LinearBlocks two,
                             collectives::BlocksOf(grid_, LinearRole::kSecond,
                                                   {tokens(), second.in, second.out}, rank_));
    const auto same = [](size_t output) { return output; };
    sublayer.w2 = AddMatrix({second}, RunsOf({second}, two.w.rows, same), two.w);
    sublayer.b2 = AddBias({second}, RunsOf({second}, two.bias, same), two.bias.count);
    for (size_t id = begin; id < made_.blocks.size(); ++id) {
      sublayer.all.push_back(static_cast<ParameterId>(id));
    }
    return sublayer;
  }

  const ModelConfig config_;
  const ModelParameters whole_;
  const TensorGrid& grid_;
  const int rank_;
  TensorParameters made_;
};

}  // namespace

uint64_t TensorParameters::elements() const {
  uint64_t count = 0;
  for (const TensorBlock& block : blocks) count += block.spec.elements();
  return count;
}

absl::StatusOr<TensorParameters> MakeTensorParameters(const ModelConfig& config,
                                                      const ModelPart& part, const TensorGrid& grid,
                                                      int rank) {
  GEMINID_ASSIGN_OR_RETURN(TensorParameters mine, Builder(config, part, grid, rank).Build());
  for (int other = 0; other < rank; ++other) {
    GEMINID_ASSIGN_OR_RETURN(const TensorParameters theirs,
                             Builder(config, part, grid, other).Build());
    for (size_t i = 0; i < mine.blocks.size(); ++i) {
      TensorBlock& block = mine.blocks[i];
      block.keeps = block.keeps && block.pieces != theirs.blocks[i].pieces;
    }
  }
  return mine;
}

}  // namespace geminid::trainer
