#include "training/nn/parallel/tensor/parallel_attention.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kernels/runtime/common/absl_status.h"
#include "training/nn/parallel/tensor/block_size.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::collectives {
namespace {

using kernels::FromKernel;

constexpr char kDense[] = "queries, keys and values of sharded layers and sequences";

absl::Status CheckHeads(const AttentionOptions& options) {
  const size_t heads = options.heads, kv_heads = options.kv_heads, head_dim = options.head_dim;
  const double theta = options.rotary_theta;
  if (kv_heads == 0 || heads % kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d heads of queries and %d of keys: the latter must divide the former", heads, kv_heads));
  }
  if (head_dim == 0 || head_dim > kernels::kAttentionHeadDimMax) {
    return absl::InvalidArgumentError(absl::StrFormat("heads of %d features: 1 to %d are supported",
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
        "a window of %d tokens does not work with sharded sequences: take one of the two",
        options.window));
  }
  if (!options.positions.empty() && options.positions.size() != options.sequence_length) {
    return absl::InvalidArgumentError(absl::StrFormat("%d positions for sequences of %d tokens",
                                                      options.positions.size(),
                                                      options.sequence_length));
  }
  return absl::OkStatus();
}

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<ParallelAttention<T>>> ParallelAttention<T>::Make(
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

template <typename T>
absl::Status ParallelAttention<T>::MakeLayers() {
  const size_t queries = options_.heads * options_.head_dim;
  const LinearOptions first = {.role = LinearRole::kFirst,
                               .shape = {options_.tokens(), options_.hidden, outputs_.outputs()},
                               .bias = options_.bias};
  const LinearOptions second = {.role = LinearRole::kSecond,
                                .shape = {options_.tokens(), queries, options_.hidden},
                                .bias = options_.bias};
  GEMINID_ASSIGN_OR_RETURN(first_, ParallelLinear<T>::Make(groups_, first, scratch_));
  GEMINID_ASSIGN_OR_RETURN(second_, ParallelLinear<T>::Make(groups_, second, scratch_));
  shape_ = {.batch = this->second().x.rows.count / options_.sequence_length,
            .sequence = options_.sequence_length,
            .heads = outputs_.PartOf(0).count / options_.head_dim,
            .kv_heads = outputs_.PartOf(1).count / options_.head_dim,
            .head_dim = options_.head_dim,
            .scale = 1.0F / std::sqrt(static_cast<float>(options_.head_dim)),
            .window = options_.window};
  return absl::OkStatus();
}

template <typename T>
absl::Status ParallelAttention<T>::MakeTable() {
  if (options_.rotary_theta == 0 || !scratch_.math().on_host()) return absl::OkStatus();
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
  table_ = {.cos = cos_.data(), .sin = sin_.data()};
  if (positions.empty()) return absl::OkStatus();
  for (std::vector<float>* table : {&cos_, &sin_}) {
    std::vector<float> mine;
    for (const size_t position : positions) {
      const float* const row = table->data() + position * half;
      mine.insert(mine.end(), row, row + half);
    }
    *table = std::move(mine);
  }
  table_ = {.cos = cos_.data(), .sin = sin_.data()};
  return absl::OkStatus();
}

template <typename T>
template <typename Element>
typename ParallelAttention<T>::template AttentionActivations<Element>
ParallelAttention<T>::ValuesIn(std::span<Element> kept) const {
  const std::span<Element> qkv = kept.subspan(OfHeads(), first().y.elements());
  return {.qkv = qkv,
          .attended = kept.subspan(OfHeads() + qkv.size()),
          .lse = reinterpret_cast<float*>(const_cast<T*>(kept.data()))};
}

template <typename T>
absl::Status ParallelAttention<T>::Gather(std::span<const T> qkv, const Dense& to) const {
  const size_t tokens = first().y.rows.count;
  const std::span<float> sections[] = {to.q, to.k, to.v};
  for (size_t i = 0; i < std::size(sections); ++i) {
    const kernels::HeadsView<const T> view = Section(qkv, i);
    GEMINID_RETURN_IF_ERROR(scratch_.math().template Of<T>().WidenRows(
        tokens, outputs_.PartOf(i).count, view.data, view.token_stride, sections[i].data()));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status ParallelAttention<T>::Scatter(const Dense& from, std::span<T> qkv) const {
  const size_t tokens = first().y.rows.count;
  const std::span<const float> sections[] = {from.q, from.k, from.v};
  for (size_t i = 0; i < std::size(sections); ++i) {
    const kernels::HeadsView<T> view = Section(qkv, i);
    GEMINID_RETURN_IF_ERROR(scratch_.math().template Of<T>().RoundRows(
        tokens, outputs_.PartOf(i).count, sections[i].data(), view.data, view.token_stride));
  }
  return absl::OkStatus();
}

template <typename T>
typename ParallelAttention<T>::Dense ParallelAttention<T>::Cut(std::span<float> all) const {
  const size_t tokens = first().y.rows.count;
  const size_t q = tokens * outputs_.PartOf(0).count, k = tokens * outputs_.PartOf(1).count;
  return {.q = all.first(q), .k = all.subspan(q, k), .v = all.subspan(q + k)};
}

template <typename T>
template <class Element>
kernels::HeadsView<Element> ParallelAttention<T>::Section(std::span<Element> qkv,
                                                          size_t section) const {
  return {.data = qkv.data() + outputs_.PartOf(section).begin,
          .token_stride = first().y.columns.count};
}

template <typename T>
absl::Status ParallelAttention<T>::Rotate(Rotation rotation, std::span<T> qkv) const {
  if (table_.cos == nullptr) return absl::OkStatus();
  for (const size_t section : {size_t{0}, size_t{1}}) {
    const kernels::HeadsView<T> heads = Section(qkv, section);
    const kernels::RotaryShape shape = {.batch = shape_.batch,
                                        .sequence = shape_.sequence,
                                        .heads = section == 0 ? shape_.heads : shape_.kv_heads,
                                        .head_dim = shape_.head_dim,
                                        .token_stride = heads.token_stride};
    GEMINID_RETURN_IF_ERROR(
        scratch_.math().template Of<T>().Rotate(rotation, shape, table_, heads.data));
  }
  return absl::OkStatus();
}

template <typename T>
template <typename Taken>
absl::StatusOr<Taken> ParallelAttention<T>::OrTellRanks(absl::StatusOr<Taken> taken) {
  if (options_.pieces != nullptr) (void)TellIfRefused(*options_.pieces, taken.status());
  return groups_.OrTellRanks(std::move(taken));
}

template <typename T>
absl::StatusOr<RoundedResults<T>> ParallelAttention<T>::Rounding(std::span<T> to) {
  return OrTellRanks(RoundedResults<T>::For(scratch_, "rounded values of a sharded attention", to));
}

template <typename T>
absl::StatusOr<Converted<float>> ParallelAttention<T>::Widened(std::span<const T> values) {
  return OrTellRanks(Converted<float>::Of(scratch_, "attended values in fp32", values));
}

template <typename T>
absl::Status ParallelAttention<T>::Attend(const AttentionActivations<T>& kept) {
  if (options_.pieces != nullptr) return AttendWithOthers(kept);
  const std::span<const T> qkv = kept.qkv;
  return TellIfRefused(groups_, scratch_.math().template Of<T>().AttentionForward(
                                    shape_, Section(qkv, 0), Section(qkv, 1), Section(qkv, 2),
                                    {kept.attended.data(), second().x.columns.count}, kept.lse));
}

template <typename T>
absl::Status ParallelAttention<T>::AttendWithOthers(const AttentionActivations<T>& kept) {
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock all,
                           OrTellRanks(scratch_.Take(kDense, kept.qkv.size())));
  GEMINID_ASSIGN_OR_RETURN(const auto attended, Rounding(kept.attended));
  const Dense dense = Cut(all.all());
  GEMINID_RETURN_IF_ERROR(TellIfRefused(groups_, Gather(kept.qkv, dense)));
  GEMINID_RETURN_IF_ERROR(TellIfRefused(
      groups_, options_.pieces->Forward(scratch_.place(), shape_, dense.q, dense.k, dense.v,
                                        attended.all(), {kept.lse, Sums()})));
  return attended.Round();
}

template <typename T>
absl::Status ParallelAttention<T>::AttendBackward(const AttentionActivations<const T>& kept,
                                                  std::span<const T> dattended, std::span<T> dqkv) {
  if (options_.pieces != nullptr) return AttendBackwardWithOthers(kept, dattended, dqkv);
  const size_t width = second().x.columns.count;
  const kernels::AttentionSaved<T> saved = {.q = Section(kept.qkv, 0),
                                            .k = Section(kept.qkv, 1),
                                            .v = Section(kept.qkv, 2),
                                            .out = {kept.attended.data(), width},
                                            .dout = {dattended.data(), width},
                                            .lse = kept.lse};
  return TellIfRefused(groups_,
                       scratch_.math().template Of<T>().AttentionBackward(
                           shape_, saved, Section(dqkv, 0), Section(dqkv, 1), Section(dqkv, 2)));
}

template <typename T>
absl::Status ParallelAttention<T>::AttendBackwardWithOthers(
    const AttentionActivations<const T>& kept, std::span<const T> dattended, std::span<T> dqkv) {
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock all, OrTellRanks(scratch_.Take(kDense, dqkv.size())));
  GEMINID_ASSIGN_OR_RETURN(
      const FloatBlock all_gradients,
      OrTellRanks(scratch_.Take("the gradients of queries, keys and values", dqkv.size())));
  GEMINID_ASSIGN_OR_RETURN(const Converted<float> out, Widened(kept.attended));
  GEMINID_ASSIGN_OR_RETURN(const Converted<float> dout, Widened(dattended));
  const Dense dense = Cut(all.all());
  GEMINID_RETURN_IF_ERROR(TellIfRefused(groups_, Gather(kept.qkv, dense)));
  const Dense gradients = Cut(all_gradients.all());
  GEMINID_RETURN_IF_ERROR(TellIfRefused(
      groups_, options_.pieces->Backward(scratch_.place(), shape_,
                                         {.q = dense.q,
                                          .k = dense.k,
                                          .v = dense.v,
                                          .out = out.all(),
                                          .lse = std::span<const float>(kept.lse, Sums())},
                                         dout.all(), gradients.q, gradients.k, gradients.v)));
  return TellIfRefused(groups_, Scatter(gradients, dqkv));
}

template <typename T>
absl::Status ParallelAttention<T>::Forward(std::span<const T> x, const Parameters& parameters,
                                           std::span<T> kept, std::span<float> y) {
  const size_t bias = options_.bias ? second().bias.count : 0;
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Y", y.size(), second().y.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("the saved activations", kept.size(), this->kept()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Wout", parameters.w_out.size(), second().w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("bout", parameters.b_out.size(), bias));
  const AttentionActivations<T> values = ValuesIn(kept);
  {
    GEMINID_ASSIGN_OR_RETURN(const auto qkv, Rounding(values.qkv));
    GEMINID_RETURN_IF_ERROR(first_->Forward(x, parameters.w_qkv, parameters.b_qkv, qkv.all()));
    GEMINID_RETURN_IF_ERROR(qkv.Round());
  }
  GEMINID_RETURN_IF_ERROR(Rotate(Rotation::kForward, values.qkv));
  GEMINID_RETURN_IF_ERROR(Attend(values));
  return second_->Forward(values.attended, parameters.w_out, parameters.b_out, y);
}

template <typename T>
absl::Status ParallelAttention<T>::Backward(std::span<const T> x, const Parameters& parameters,
                                            std::span<const T> kept, std::span<const T> dy,
                                            const Gradients& gradients) {
  const size_t bias = options_.bias ? first().bias.count : 0;
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("X", x.size(), first().x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("the saved activations", kept.size(), this->kept()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Wqkv", parameters.w_qkv.size(), first().w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dX", gradients.x.size(), first().x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dWqkv", gradients.w_qkv.size(), first().w.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dbqkv", gradients.b_qkv.size(), bias));
  const AttentionActivations<const T> values = ValuesIn(kept);
  // Taken in the order of a stack.
  GEMINID_ASSIGN_OR_RETURN(
      const ElementBlock<T> dqkv,
      OrTellRanks(scratch_.Take<T>("the gradient of its first layer's output", values.qkv.size())));
  {
    GEMINID_ASSIGN_OR_RETURN(const ElementBlock<T> dattended,
                             OrTellRanks(scratch_.Take<T>("the gradient of the attended values",
                                                          values.attended.size())));
    {
      GEMINID_ASSIGN_OR_RETURN(const auto given, Rounding(dattended.all()));
      GEMINID_RETURN_IF_ERROR(
          second_->Backward(values.attended, parameters.w_out, dy,
                            {.x = given.all(), .w = gradients.w_out, .bias = gradients.b_out}));
      GEMINID_RETURN_IF_ERROR(given.Round());
    }
    GEMINID_RETURN_IF_ERROR(AttendBackward(values, dattended.all(), dqkv.all()));
  }
  GEMINID_RETURN_IF_ERROR(Rotate(Rotation::kBackward, dqkv.all()));
  return first_->Backward(x, parameters.w_qkv, dqkv.all(),
                          {.x = gradients.x, .w = gradients.w_qkv, .bias = gradients.b_qkv});
}

template class ParallelAttention<float>;
template class ParallelAttention<kernels::BFloat16>;

}  // namespace geminid::collectives
