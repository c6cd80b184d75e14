#include "training/nn/parallel/tensor/parallel_attention.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/parallel/tasks.h"
#include "training/nn/parallel/tensor/block_size.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::collectives {
namespace {

using kernels::FromKernel;

constexpr char kDense[] = "queries, keys and values of cut layers and sequences";

absl::Status CheckHeads(const AttentionOptions& options) {
  const size_t heads = options.heads, kv_heads = options.kv_heads, head_dim = options.head_dim;
  const double theta = options.rotary_theta;
  if (kv_heads == 0 || heads % kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d heads of queries and %d of keys: the latter must divide the former", heads, kv_heads));
  }
  if (head_dim == 0 || head_dim > kernels::kAttentionHeadDimMax) {
    return absl::InvalidArgumentError(absl::StrFormat("heads of %d features: 1 to %d can be",
                                                      head_dim, kernels::kAttentionHeadDimMax));
  }
  if (!std::isfinite(theta) || theta < 0 || (theta > 0 && head_dim % 2 != 0)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "heads of %d features turned with a theta of %g: it is finite and positive, and they are "
        "even; or it is 0",
        head_dim, theta));
  }
  if (!options.rotary_angles.empty() && options.rotary_angles.size() != head_dim / 2) {
    return absl::InvalidArgumentError(absl::StrFormat("%d angles for heads of %d features",
                                                      options.rotary_angles.size(), head_dim));
  }
  if (options.window > 0 && options.pieces != nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a window of %d tokens beside sequences in pieces: one of them can be", options.window));
  }
  if (!options.positions.empty() && options.positions.size() != options.sequence_length) {
    return absl::InvalidArgumentError(absl::StrFormat("%d positions for sequences of %d tokens",
                                                      options.positions.size(),
                                                      options.sequence_length));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParallelAttention>> ParallelAttention::Make(
    TensorGroups& groups, const AttentionOptions& options, LinearScratch& scratch) {
  GEMINID_RETURN_IF_ERROR(CheckHeads(options));
  const TensorGrid& grid = groups.grid();
  // Every rank has whole heads and whole sequences.
  const ActivationLayout within = LayoutOfX(grid.mode(), LinearRole::kSecond);
  for (const size_t heads : {options.heads, options.kv_heads}) {
    GEMINID_RETURN_IF_ERROR(PieceOf(grid, within.features, "heads", heads, 0).status());
  }
  GEMINID_RETURN_IF_ERROR(PieceOf(grid, within.tokens, "sequences", options.sequences, 0).status());
  const size_t queries = options.heads * options.head_dim;
  const size_t keys = options.kv_heads * options.head_dim;
  GEMINID_ASSIGN_OR_RETURN(FusedOutputs outputs, FusedOutputs::Make(grid, {queries, keys, keys}));
  std::unique_ptr<ParallelAttention> attention(
      new ParallelAttention(groups, options, std::move(outputs), scratch));
  GEMINID_RETURN_IF_ERROR(attention->MakeLayers());
  GEMINID_RETURN_IF_ERROR(attention->MakeTable());
  return attention;
}

absl::Status ParallelAttention::MakeLayers() {
  const size_t queries = options_.heads * options_.head_dim;
  const LinearOptions first = {.role = LinearRole::kFirst,
                               .shape = {options_.tokens(), options_.hidden, outputs_.outputs()},
                               .bias = options_.bias};
  const LinearOptions second = {.role = LinearRole::kSecond,
                                .shape = {options_.tokens(), queries, options_.hidden},
                                .bias = options_.bias};
  GEMINID_ASSIGN_OR_RETURN(first_, ParallelLinear::Make(groups_, first, scratch_));
  GEMINID_ASSIGN_OR_RETURN(second_, ParallelLinear::Make(groups_, second, scratch_));
  shape_ = {.batch = this->second().x.rows.count / options_.sequence_length,
            .sequence = options_.sequence_length,
            .heads = outputs_.PartOf(0).count / options_.head_dim,
            .kv_heads = outputs_.PartOf(1).count / options_.head_dim,
            .head_dim = options_.head_dim,
            .scale = 1.0F / std::sqrt(static_cast<float>(options_.head_dim)),
            .window = options_.window};
  return absl::OkStatus();
}

absl::Status ParallelAttention::MakeTable() {
  if (options_.rotary_theta == 0) return absl::OkStatus();
  const std::vector<size_t>& positions = options_.positions;
  const size_t half = options_.head_dim / 2;
  const size_t rows =
      positions.empty() ? options_.sequence_length : *std::ranges::max_element(positions) + 1;
  cos_.resize(rows * half);
  sin_.resize(rows * half);
  GEMINID_RETURN_IF_ERROR(
      FromKernel(options_.rotary_angles.empty()
                     ? kernels::RotaryTable(rows, options_.head_dim, options_.rotary_theta,
                                            cos_.data(), sin_.data())
                     : kernels::RotaryTable(rows, options_.rotary_angles, options_.rotary_length,
                                            cos_.data(), sin_.data()),
                 "table of positions"));
  if (positions.empty()) return absl::OkStatus();
  for (std::vector<float>* table : {&cos_, &sin_}) {
    std::vector<float> mine;
    for (const size_t position : positions) {
      const float* const row = table->data() + position * half;
      mine.insert(mine.end(), row, row + half);
    }
    *table = std::move(mine);
  }
  return absl::OkStatus();
}

void ParallelAttention::Gather(std::span<const float> qkv, size_t section,
                               std::span<float> dense) const {
  const kernels::HeadsView<const float> view = Section(qkv, section);
  const size_t columns = outputs_.PartOf(section).count;
  for (size_t at = 0, token = 0; at < dense.size(); at += columns, ++token) {
    std::copy_n(view.data + token * view.token_stride, columns, dense.data() + at);
  }
}

void ParallelAttention::Scatter(std::span<const float> dense, size_t section,
                                std::span<float> qkv) const {
  const kernels::HeadsView<float> view = Section(qkv, section);
  const size_t columns = outputs_.PartOf(section).count;
  for (size_t at = 0, token = 0; at < dense.size(); at += columns, ++token) {
    std::copy_n(dense.data() + at, columns, view.data + token * view.token_stride);
  }
}

ParallelAttention::Dense ParallelAttention::Cut(std::span<float> all) const {
  const size_t tokens = first().y.rows.count;
  const size_t q = tokens * outputs_.PartOf(0).count, k = tokens * outputs_.PartOf(1).count;
  return {.q = all.first(q), .k = all.subspan(q, k), .v = all.subspan(q + k)};
}

ParallelAttention::Dense ParallelAttention::GatherAll(std::span<const float> qkv,
                                                      std::span<float> all) const {
  const Dense dense = Cut(all);
  Gather(qkv, 0, dense.q);
  Gather(qkv, 1, dense.k);
  Gather(qkv, 2, dense.v);
  return dense;
}

template <class Float>
kernels::HeadsView<Float> ParallelAttention::Section(std::span<Float> qkv, size_t section) const {
  return {.data = qkv.data() + outputs_.PartOf(section).begin,
          .token_stride = first().y.columns.count};
}

absl::Status ParallelAttention::Turn(Rotate rotate, std::span<float> qkv) const {
  if (cos_.empty()) return absl::OkStatus();
  for (const size_t section : {size_t{0}, size_t{1}}) {
    const kernels::HeadsView<float> heads = Section(qkv, section);
    const kernels::RotaryShape shape = {.batch = shape_.batch,
                                        .sequence = shape_.sequence,
                                        .heads = section == 0 ? shape_.heads : shape_.kv_heads,
                                        .head_dim = shape_.head_dim,
                                        .token_stride = heads.token_stride};
    GEMINID_RETURN_IF_ERROR(
        FromKernel(rotate(shape, cos_.data(), sin_.data(), heads.data), "rotary"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FloatBlock> ParallelAttention::Take(std::string_view what, size_t elements) {
  absl::StatusOr<FloatBlock> taken = groups_.OrTell(scratch_.Take(what, elements));
  if (options_.pieces != nullptr) (void)TellIfRefused(*options_.pieces, taken.status());
  return taken;
}

absl::StatusOr<Memory::Block> ParallelAttention::Workspace() {
  LocalProducts& products = scratch_.products();
  const size_t threads = kernels::ThreadsOf(products.pool());
  return groups_.OrTell(products.Workspace(kernels::AttentionWorkspaceBytes(shape_, threads)));
}

absl::Status ParallelAttention::Attend(std::span<const float> qkv, std::span<float> attended,
                                       float* lse) {
  if (options_.pieces != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock all, Take(kDense, qkv.size()));
    const Dense dense = GatherAll(qkv, all.all());
    return TellIfRefused(
        groups_, options_.pieces->Forward(scratch_.memory(), shape_, dense.q, dense.k, dense.v,
                                          attended, {lse, shape_.heads * second().x.rows.count}));
  }
  GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, Workspace());
  return FromKernel(kernels::AttentionForward<float>(
                        shape_, Section(qkv, 0), Section(qkv, 1), Section(qkv, 2),
                        {attended.data(), second().x.columns.count}, lse, workspace.data(),
                        workspace.bytes(), scratch_.products().pool()),
                    "attention");
}

absl::Status ParallelAttention::AttendBackward(std::span<const float> kept,
                                               std::span<const float> dattended,
                                               std::span<float> dqkv) {
  if (options_.pieces != nullptr) return AttendWithOthers(kept, dattended, dqkv);
  GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, Workspace());
  const size_t attended = first().y.elements(), width = second().x.columns.count;
  const kernels::AttentionSaved<float> saved = {
      .q = Section(kept, 0),
      .k = Section(kept, 1),
      .v = Section(kept, 2),
      .out = {kept.data() + attended, width},
      .dout = {dattended.data(), width},
      .lse = kept.data() + attended + second().x.elements()};
  return FromKernel(kernels::AttentionBackward<float>(
                        shape_, saved, Section(dqkv, 0), Section(dqkv, 1), Section(dqkv, 2),
                        workspace.data(), workspace.bytes(), scratch_.products().pool()),
                    "attention backward");
}

absl::Status ParallelAttention::AttendWithOthers(std::span<const float> kept,
                                                 std::span<const float> dattended,
                                                 std::span<float> dqkv) {
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock all, Take(kDense, dqkv.size()));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock all_gradients,
                           Take("the gradients of queries, keys and values", dqkv.size()));
  const Dense dense = GatherAll(kept.first(dqkv.size()), all.all());
  const std::span<const float> attended = kept.subspan(dqkv.size(), dattended.size());
  const std::span<const float> lse = kept.subspan(dqkv.size() + attended.size());
  const Dense gradients = Cut(all_gradients.all());
  GEMINID_RETURN_IF_ERROR(TellIfRefused(
      groups_, options_.pieces->Backward(
                   scratch_.memory(), shape_,
                   {.q = dense.q, .k = dense.k, .v = dense.v, .out = attended, .lse = lse},
                   dattended, gradients.q, gradients.k, gradients.v)));
  Scatter(gradients.q, 0, dqkv);
  Scatter(gradients.k, 1, dqkv);
  Scatter(gradients.v, 2, dqkv);
  return absl::OkStatus();
}

absl::Status ParallelAttention::Forward(std::span<const float> x, const Parameters& parameters,
                                        std::span<float> kept, std::span<float> y) {
  const size_t bias = options_.bias ? second().bias.count : 0;
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Y", y.size(), second().y.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("what is kept", kept.size(), this->kept()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Wout", parameters.w_out.size(), second().w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("bout", parameters.b_out.size(), bias));
  const std::span<float> qkv = kept.first(first().y.elements());
  const std::span<float> attended = kept.subspan(qkv.size(), second().x.elements());
  GEMINID_RETURN_IF_ERROR(first_->Forward(x, parameters.w_qkv, parameters.b_qkv, qkv));
  GEMINID_RETURN_IF_ERROR(Turn(kernels::RotaryForward<float>, qkv));
  GEMINID_RETURN_IF_ERROR(Attend(qkv, attended, attended.data() + attended.size()));
  return second_->Forward(attended, parameters.w_out, parameters.b_out, y);
}

absl::Status ParallelAttention::Backward(std::span<const float> x, const Parameters& parameters,
                                         std::span<const float> kept, std::span<const float> dy,
                                         const Gradients& gradients) {
  const size_t bias = options_.bias ? first().bias.count : 0;
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("X", x.size(), first().x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("what is kept", kept.size(), this->kept()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Wqkv", parameters.w_qkv.size(), first().w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dX", gradients.x.size(), first().x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dWqkv", gradients.w_qkv.size(), first().w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dbqkv", gradients.b_qkv.size(), bias));
  const std::span<const float> attended = kept.subspan(first().y.elements(), second().x.elements());
  // Allocated in the order of a stack.
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock dqkv,
                           Take("the gradient of what its first layer gave", first().y.elements()));
  {
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock dattended,
                             Take("the gradient of what was attended to", attended.size()));
    GEMINID_RETURN_IF_ERROR(
        second_->Backward(attended, parameters.w_out, dy,
                          {.x = dattended.all(), .w = gradients.w_out, .bias = gradients.b_out}));
    GEMINID_RETURN_IF_ERROR(AttendBackward(kept, dattended.all(), dqkv.all()));
  }
  GEMINID_RETURN_IF_ERROR(Turn(kernels::RotaryBackward<float>, dqkv.all()));
  return first_->Backward(x, parameters.w_qkv, dqkv.all(),
                          {.x = gradients.x, .w = gradients.w_qkv, .bias = gradients.b_qkv});
}

}  // namespace geminid::collectives
