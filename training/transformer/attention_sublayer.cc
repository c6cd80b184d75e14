#include "training/transformer/attention_sublayer.h"

#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kernels/model/attention/attention.h"
#include "training/nn/later_gradients.h"
#include "training/nn/layer_share.h"
#include "training/nn/sequence_ring.h"
#include "training/nn/workspace_memory.h"
#include "training/transformer/attention_heads.h"
#include "training/transformer/norm_layer.h"
#include "training/transformer/output_sum.h"

namespace geminid::trainer {

namespace {

std::vector<const LinearPlace*> LinearLayersOf(const AttentionPlaces& places) {
  if (places.qkv) return {&*places.qkv, &places.output};
  return {&places.q, &places.k, &places.v, &places.output};
}

template <typename T>
kernels::HeadsView<T> Heads(Matrix<T> matrix) {
  return {.data = matrix.data, .token_stride = matrix.stride};
}

// The values of one group that the backward pass needs, in storage of their own or in `kept`.
template <typename T>
struct GroupValues {
  Scratch<T> storage{};
  Scratch<float> lse_storage{};
  Qkv<T> qkv;
  Matrix<T> attended;
  float* lse;

  static absl::StatusOr<GroupValues> Of(const Resources& resources, size_t tokens,
                                        const Group& group, const AttentionActivations<T>* kept) {
    const size_t elements = Qkv<T>::Elements(tokens, group);
    if (kept != nullptr) {
      T* const data = kept->qkv.data() + tokens * (group.first_query + 2 * group.first_kv);
      const size_t first_head = group.first_query / group.shape.head_dim;
      return GroupValues{.qkv = Qkv<T>(data, tokens, group),
                         .attended = Matrix<T>(kept->attended.data() + tokens * group.first_query,
                                               tokens, group.query_columns),
                         .lse = kept->lse.data() + tokens * first_head};
    }
    GEMINID_ASSIGN_OR_RETURN(
        auto storage, Scratch<T>::Allocate(resources, elements + tokens * group.query_columns));
    GEMINID_ASSIGN_OR_RETURN(auto lse,
                             Scratch<float>::Allocate(resources, tokens * group.shape.heads));
    T* const data = storage.data();
    float* const lse_data = lse.data();
    return GroupValues{.storage = std::move(storage),
                       .lse_storage = std::move(lse),
                       .qkv = Qkv<T>(data, tokens, group),
                       .attended = Matrix<T>(data + elements, tokens, group.query_columns),
                       .lse = lse_data};
  }
};

// One attention sublayer in progress.
template <typename T>
class AttentionSublayer {
 public:
  AttentionSublayer(const Resources& resources, const SublayerContext& context,
                    const AttentionPlaces& places)
      : resources_(resources), context_(context), places_(places) {}

  // `spare` has as many elements as qkv. It is used with AttentionPlaces::qkv alone.
  absl::Status Project(const ParameterUse& use, const Group& group, Matrix<const T> n,
                       const Qkv<T>& qkv, T* spare) {
    if (places_.qkv) {
      const Matrix<T> fused(spare, n.rows, FusedColumns(group));
      const auto weight = WeightOf<T>(use, *places_.qkv).Outputs(FirstFused(group), fused.cols);
      GEMINID_RETURN_IF_ERROR(Forward<T>(resources_, n, weight, fused));
      const FusedHeads<T> heads(*context_.config, fused);
      GEMINID_RETURN_IF_ERROR(heads.Split(resources_, qkv.q, qkv.k, qkv.v));
    } else {
      const auto q = WeightOf<T>(use, places_.q).Outputs(group.first_query, group.query_columns);
      const auto k = WeightOf<T>(use, places_.k).Outputs(group.first_kv, group.kv_columns);
      const auto v = WeightOf<T>(use, places_.v).Outputs(group.first_kv, group.kv_columns);
      GEMINID_RETURN_IF_ERROR(Forward<T>(resources_, n, q, qkv.q));
      GEMINID_RETURN_IF_ERROR(Forward<T>(resources_, n, k, qkv.k));
      GEMINID_RETURN_IF_ERROR(Forward<T>(resources_, n, v, qkv.v));
    }
    GEMINID_RETURN_IF_ERROR(NormHeads(resources_, context_, places_.q_norm, use, qkv.q));
    GEMINID_RETURN_IF_ERROR(NormHeads(resources_, context_, places_.k_norm, use, qkv.k));
    GEMINID_RETURN_IF_ERROR(Rotate(resources_, context_, PassDirection::kForward, qkv.q));
    return Rotate(resources_, context_, PassDirection::kForward, qkv.k);
  }

  absl::Status Attend(const Group& group, const Qkv<T>& qkv, Matrix<T> out, float* lse) {
    const KernelsOf<T>& math = KernelsFor<T>(resources_);
    if (context_.cut.ring != nullptr) {
      return context_.cut.ring->AttentionForward<T>(resources_, group.shape, qkv.q, qkv.k, qkv.v,
                                                    out, lse);
    }
    if (context_.cut.swap == nullptr) {
      return math.AttentionForward(resources_, group.shape, qkv.q, qkv.k, qkv.v, out, lse);
    }
    const Group mine = ShareOf(group);
    const size_t tokens = mine.shape.batch * mine.shape.sequence;
    GEMINID_ASSIGN_OR_RETURN(auto whole, Qkv<T>::Allocate(resources_, tokens, mine));
    GEMINID_ASSIGN_OR_RETURN(auto attended, Rows::Allocate(resources_, tokens, mine.query_columns));
    GEMINID_RETURN_IF_ERROR(ToHeads(group, qkv, whole));
    GEMINID_RETURN_IF_ERROR(math.AttentionForward(resources_, mine.shape, whole.q, whole.k, whole.v,
                                                  attended.matrix, lse));
    return Swap(ExchangeDirection::kToSlices, group.shape.heads, attended.matrix, out);
  }

  absl::Status AttendBackward(const Group& group, const Qkv<T>& qkv, Matrix<const T> out,
                              Matrix<const T> dout, const float* lse, const Qkv<T>& gradients) {
    GEMINID_RETURN_IF_ERROR(context_.cut.swap == nullptr
                                ? AttentionBackward(group, qkv, out, dout, lse, gradients)
                                : SwappedBackward(group, qkv, out, dout, lse, gradients));
    GEMINID_RETURN_IF_ERROR(Rotate(resources_, context_, PassDirection::kBackward, gradients.q));
    return Rotate(resources_, context_, PassDirection::kBackward, gradients.k);
  }

  absl::Status AttentionBackward(const Group& group, const Qkv<T>& qkv, Matrix<const T> out,
                                 Matrix<const T> dout, const float* lse, const Qkv<T>& gradients) {
    const kernels::AttentionSaved<T> saved = {.q = Heads<const T>(qkv.q),
                                              .k = Heads<const T>(qkv.k),
                                              .v = Heads<const T>(qkv.v),
                                              .out = Heads(out),
                                              .dout = Heads(dout),
                                              .lse = lse};
    if (context_.cut.ring != nullptr) {
      return context_.cut.ring->AttentionBackward(resources_, group.shape, saved, gradients.q,
                                                  gradients.k, gradients.v);
    }
    return KernelsFor<T>(resources_)
        .AttentionBackward(resources_, group.shape, saved, gradients.q, gradients.k, gradients.v);
  }

  // Exchanges queries, keys and values again: storing both forms would take twice the memory.
  absl::Status SwappedBackward(const Group& group, const Qkv<T>& qkv, Matrix<const T> out,
                               Matrix<const T> dout, const float* lse, const Qkv<T>& gradients) {
    const Group mine = ShareOf(group);
    const size_t tokens = mine.shape.batch * mine.shape.sequence;
    GEMINID_ASSIGN_OR_RETURN(auto whole, Qkv<T>::Allocate(resources_, tokens, mine));
    GEMINID_ASSIGN_OR_RETURN(auto attended, Rows::Allocate(resources_, tokens, mine.query_columns));
    GEMINID_ASSIGN_OR_RETURN(auto dattended,
                             Rows::Allocate(resources_, tokens, mine.query_columns));
    GEMINID_ASSIGN_OR_RETURN(auto dwhole, Qkv<T>::Allocate(resources_, tokens, mine));
    GEMINID_RETURN_IF_ERROR(ToHeads(group, qkv, whole));
    const size_t heads = group.shape.heads;
    GEMINID_RETURN_IF_ERROR(Swap(ExchangeDirection::kToHeads, heads, out, attended.matrix));
    GEMINID_RETURN_IF_ERROR(Swap(ExchangeDirection::kToHeads, heads, dout, dattended.matrix));
    GEMINID_RETURN_IF_ERROR(
        AttentionBackward(mine, whole, attended.matrix, dattended.matrix, lse, dwhole));
    const size_t kv_heads = group.shape.kv_heads;
    GEMINID_RETURN_IF_ERROR(Swap(ExchangeDirection::kToSlices, heads, dwhole.q, gradients.q));
    GEMINID_RETURN_IF_ERROR(Swap(ExchangeDirection::kToSlices, kv_heads, dwhole.k, gradients.k));
    return Swap(ExchangeDirection::kToSlices, kv_heads, dwhole.v, gradients.v);
  }

  // Turns the gradient of the heads' norm output into the gradient of the output of `projection`.
  // Computes that output again, because only the attention's inputs are kept. Without a norm:
  // nothing.
  absl::Status NormHeadsBackward(ParameterUse& use, const std::optional<NormPlace>& place,
                                 const LinearPlace& projection, Matrix<const T> n,
                                 Matrix<T> gradient) {
    if (!place) return absl::OkStatus();
    const size_t head_dim = context_.config->head_dim();
    GEMINID_ASSIGN_OR_RETURN(auto x, Rows::Allocate(resources_, gradient.rows, gradient.cols));
    GEMINID_ASSIGN_OR_RETURN(auto unread, Rows::Allocate(resources_, gradient.rows, gradient.cols));
    GEMINID_RETURN_IF_ERROR(Forward<T>(
        resources_, n, WeightOf<T>(use, projection).Outputs(0, gradient.cols), x.matrix));
    GEMINID_ASSIGN_OR_RETURN(auto norm, NormLayer<T>::Create(resources_, context_, *place,
                                                             gradient.size() / head_dim, head_dim));
    GEMINID_RETURN_IF_ERROR(norm.Forward(use, x.matrix.data, unread.matrix.data));
    GEMINID_RETURN_IF_ERROR(
        norm.Backward(use, gradient.data, x.matrix.data, /*residual=*/nullptr, gradient.data));
    return context_.layers == nullptr ? absl::OkStatus() : norm.SumGradients(use, *context_.layers);
  }

  // Adds the gradient of n through one projection, then overwrites the weight with its gradient.
  absl::Status ProjectBackward(ParameterUse& use, const LinearPlace& place, size_t first,
                               Matrix<const T> dy, Matrix<const T> n, Matrix<float> dn,
                               bool accumulate) {
    GEMINID_RETURN_IF_ERROR(BackwardInput<T>(
        resources_, dy, WeightOf<T>(use, place).Outputs(first, dy.cols), dn, accumulate));
    return BackwardWeight<T>(resources_, dy, n, {place, LinearSlice::Of::kOutputs, first, dy.cols},
                             use);
  }

  // The first group writes dn unless `adds`; the others add to dn.
  absl::Status GroupBackward(ParameterUse& use, const Group& group, Matrix<const T> n,
                             Matrix<const T> gradient, Matrix<float> dn, bool adds,
                             const AttentionActivations<T>* kept) {
    const size_t tokens = n.rows;
    GEMINID_ASSIGN_OR_RETURN(auto dqkv, Qkv<T>::Allocate(resources_, tokens, group));
    {
      GEMINID_ASSIGN_OR_RETURN(auto values, GroupValues<T>::Of(resources_, tokens, group, kept));
      GEMINID_ASSIGN_OR_RETURN(auto storage,
                               Scratch<T>::Allocate(resources_, tokens * group.query_columns));
      const Matrix<T>& out = values.attended;
      const Matrix<T> dout(storage.data(), tokens, group.query_columns);
      if (kept == nullptr) {
        // dqkv's storage is free here: no gradients are in it yet.
        GEMINID_RETURN_IF_ERROR(Project(use, group, n, values.qkv, dqkv.storage.data()));
        GEMINID_RETURN_IF_ERROR(Attend(group, values.qkv, out, values.lse));
      }
      GEMINID_RETURN_IF_ERROR(BackwardInput<T>(
          resources_, gradient,
          WeightOf<T>(use, places_.output).Inputs(group.first_query, group.query_columns), dout));
      GEMINID_RETURN_IF_ERROR(BackwardWeight<T>(
          resources_, gradient, out,
          {places_.output, LinearSlice::Of::kInputs, group.first_query, group.query_columns}, use));
      GEMINID_RETURN_IF_ERROR(AttendBackward(group, values.qkv, out, dout, values.lse, dqkv));
    }
    GEMINID_RETURN_IF_ERROR(NormHeadsBackward(use, places_.q_norm, places_.q, n, dqkv.q));
    GEMINID_RETURN_IF_ERROR(NormHeadsBackward(use, places_.k_norm, places_.k, n, dqkv.k));
    const bool first = group.first_query == 0 && !adds;
    if (places_.qkv) {
      GEMINID_ASSIGN_OR_RETURN(auto fused, Rows::Allocate(resources_, tokens, FusedColumns(group)));
      const FusedHeads<T> heads(*context_.config, fused.matrix);
      GEMINID_RETURN_IF_ERROR(heads.Join(resources_, dqkv.q, dqkv.k, dqkv.v));
      return ProjectBackward(use, *places_.qkv, FirstFused(group), fused.matrix, n, dn, !first);
    }
    GEMINID_RETURN_IF_ERROR(
        ProjectBackward(use, places_.q, group.first_query, dqkv.q, n, dn, !first));
    GEMINID_RETURN_IF_ERROR(ProjectBackward(use, places_.k, group.first_kv, dqkv.k, n, dn, true));
    return ProjectBackward(use, places_.v, group.first_kv, dqkv.v, n, dn, true);
  }

 private:
  enum class ExchangeDirection { kToHeads, kToSlices };

  // The columns of AttentionPlaces::qkv that belong to a group.
  static size_t FusedColumns(const Group& group) {
    return group.query_columns + 2 * group.kv_columns;
  }
  static size_t FirstFused(const Group& group) { return group.first_query + 2 * group.first_kv; }

  // A dense matrix in scratch memory.
  struct Rows {
    Scratch<T> storage;
    Matrix<T> matrix;
    static absl::StatusOr<Rows> Allocate(const Resources& resources, size_t rows, size_t cols) {
      GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(resources, rows * cols));
      const Matrix<T> matrix(storage.data(), rows, cols);
      return Rows{std::move(storage), matrix};
    }
  };

  // The share of a group that one rank attends to: whole sequences of some of the group's heads.
  Group ShareOf(const Group& group) const {
    const size_t ranks = context_.cut.swap->ranks();
    Group mine = group;
    mine.query_columns /= ranks;
    mine.kv_columns /= ranks;
    mine.shape.sequence *= ranks;
    mine.shape.heads /= ranks;
    mine.shape.kv_heads /= ranks;
    return mine;
  }

  absl::Status ToHeads(const Group& group, const Qkv<T>& pieces, const Qkv<T>& whole) {
    GEMINID_RETURN_IF_ERROR(
        Swap(ExchangeDirection::kToHeads, group.shape.heads, pieces.q, whole.q));
    GEMINID_RETURN_IF_ERROR(
        Swap(ExchangeDirection::kToHeads, group.shape.kv_heads, pieces.k, whole.k));
    return Swap(ExchangeDirection::kToHeads, group.shape.kv_heads, pieces.v, whole.v);
  }

  // Both matrices are dense; `heads` counts the heads of all ranks. The exchange is in fp32.
  absl::Status Swap(ExchangeDirection way, size_t heads, Matrix<const T> from, Matrix<T> to) {
    const KernelsOf<T>& math = KernelsFor<T>(resources_);
    const collectives::HeadsShape whole = {
        .batch = context_.shape.sequences,
        .sequence = context_.shape.sequence_length * context_.cut.swap->ranks(),
        .heads = heads,
        .head_dim = context_.config->head_dim()};
    constexpr char kWhat[] = "fp32 copies for an exchange of heads";
    collectives::UlyssesExchange& swap = *context_.cut.swap;
    WorkspaceMemory of_host(resources_.workspace);
    collectives::Memory& memory = context_.cut.memory == nullptr ? of_host : *context_.cut.memory;
    const auto exchange = [&](std::span<const float> out, std::span<float> in) {
      return way == ExchangeDirection::kToHeads ? swap.ToHeads(whole, out, in, memory)
                                                : swap.ToSlices(whole, out, in, memory);
    };
    if constexpr (std::is_same_v<T, float>) {
      if (&memory == &of_host) {
        return exchange({from.data, from.size()}, {to.data, to.size()});
      }
    }
    GEMINID_ASSIGN_OR_RETURN(const auto out,
                             collectives::AllocateOrTellRanks(swap, memory, kWhat, from.size()));
    GEMINID_ASSIGN_OR_RETURN(const auto in,
                             collectives::AllocateOrTellRanks(swap, memory, kWhat, to.size()));
    GEMINID_RETURN_IF_ERROR(math.DownloadWidened(resources_, from.data, from.size(), out.data()));
    GEMINID_RETURN_IF_ERROR(exchange(out.all(), in.all()));
    return math.UploadRounded(resources_, in.data(), in.size(), to.data);
  }

  const Resources& resources_;
  const SublayerContext& context_;
  const AttentionPlaces& places_;
};

}  // namespace

template <typename T>
absl::StatusOr<AttentionActivations<T>> AttentionActivations<T>::Allocate(
    const Resources& resources, const SublayerContext& context) {
  const ModelConfig& config = *context.config;
  const size_t tokens = context.shape.tokens();
  AttentionActivations kept;
  GEMINID_ASSIGN_OR_RETURN(
      kept.qkv, Scratch<T>::Allocate(
                    resources, tokens * (config.heads + 2 * config.kv_heads) * config.head_dim()));
  GEMINID_ASSIGN_OR_RETURN(
      kept.attended, Scratch<T>::Allocate(resources, tokens * config.heads * config.head_dim()));
  GEMINID_ASSIGN_OR_RETURN(kept.lse, Scratch<float>::Allocate(resources, tokens * config.heads));
  return kept;
}

template <typename T>
absl::Status AttentionSublayerForward(const Resources& resources, const SublayerContext& context,
                                      const AttentionPlaces& places, const ParameterUse& use,
                                      const SublayerForward<T>& flow,
                                      const AttentionActivations<T>* kept) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  const size_t queries = context.config->query_columns();
  GEMINID_ASSIGN_OR_RETURN(auto storage,
                           Scratch<T>::Allocate(resources, tokens * (queries + hidden)));
  const Matrix<T> attended(storage.data(), tokens, queries);
  const Matrix<T> n(attended.data + attended.size(), tokens, hidden);
  GEMINID_RETURN_IF_ERROR(Normalise<T>(resources, context, places.norm, use, flow.x, n.data));
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  AttentionSublayer<T> sublayer(resources, context, places);
  const Groups groups(context);
  for (size_t i = 0; i < groups.count(); ++i) {
    const Group group = groups.At(i);
    GEMINID_ASSIGN_OR_RETURN(auto values, GroupValues<T>::Of(resources, tokens, group, kept));
    Scratch<T> spare;
    if (places.qkv) {
      GEMINID_ASSIGN_OR_RETURN(spare,
                               Scratch<T>::Allocate(resources, Qkv<T>::Elements(tokens, group)));
    }
    GEMINID_RETURN_IF_ERROR(sublayer.Project(use, group, n, values.qkv, spare.data()));
    spare.Free();
    GEMINID_RETURN_IF_ERROR(sublayer.Attend(group, values.qkv, values.attended, values.lse));
    GEMINID_RETURN_IF_ERROR(math.Copy(resources, values.attended,
                                      attended.Cols(group.first_query, group.query_columns)));
  }
  const auto output = WeightOf<T>(use, places.output);
  GEMINID_ASSIGN_OR_RETURN(const T* const residual, ResidualOf<T>(resources, context, flow, n));
  if (context.layers != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(auto sum, OutputSum<T>::Begin(resources, context, residual, flow.out));
    GEMINID_RETURN_IF_ERROR((Forward<T, float>(resources, attended, output.Inputs(0, output.in),
                                               sum.values(), /*accumulate=*/true)));
    return sum.Finish(resources, output.bias, n.data);  // n is no longer needed
  }
  const Matrix<T> out(flow.out, tokens, hidden);
  if (!context.config->norms_after()) {
    GEMINID_RETURN_IF_ERROR(math.Copy(resources, Matrix<const T>(residual, tokens, hidden), out));
  }
  if (!context.dropout.dropout.active()) {
    return Forward<T>(resources, attended, output, out, /*accumulate=*/true);
  }
  const Matrix<T>& added = n;  // n is no longer needed
  GEMINID_RETURN_IF_ERROR(Forward<T>(resources, attended, output, added));
  return math.AddDropped(resources, context.dropout, added, flow.out);
}

template <typename T>
absl::Status AttentionSublayerExtend(const Resources& resources, const SublayerContext& context,
                                     const AttentionPlaces& places, const ParameterUse& use,
                                     const SublayerForward<T>& flow,
                                     const LayerKeyValueCache<T>& cache) {
  const ModelConfig& config = *context.config;
  const size_t tokens = context.shape.tokens(), past = context.positions.first;
  const size_t queries = config.query_columns(), columns = config.kv_columns();
  Group all = {.first_query = 0,
               .query_columns = queries,
               .first_kv = 0,
               .kv_columns = columns,
               .shape = AttentionShapeOf(config, context.shape, config.kv_heads)};
  all.shape.sequence = past + tokens;
  all.shape.first_query = past;
  GEMINID_ASSIGN_OR_RETURN(auto storage,
                           Scratch<T>::Allocate(resources, tokens * (config.hidden + 2 * queries)));
  const Matrix<T> n(storage.data(), tokens, config.hidden);
  const Matrix<T> attended(n.data + n.size(), tokens, queries);
  Qkv<T> qkv(attended.data + attended.size(), tokens, all);
  qkv.k.data = cache.keys + past * columns;
  qkv.v.data = cache.values + past * columns;
  GEMINID_RETURN_IF_ERROR(Normalise<T>(resources, context, places.norm, use, flow.x, n.data));
  {
    Scratch<T> spare;
    if (places.qkv) {
      GEMINID_ASSIGN_OR_RETURN(spare,
                               Scratch<T>::Allocate(resources, Qkv<T>::Elements(tokens, all)));
    }
    GEMINID_RETURN_IF_ERROR(
        AttentionSublayer<T>(resources, context, places).Project(use, all, n, qkv, spare.data()));
  }
  GEMINID_ASSIGN_OR_RETURN(auto lse, Scratch<float>::Allocate(resources, tokens * config.heads));
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  GEMINID_RETURN_IF_ERROR(math.AttentionForward(
      resources, all.shape, qkv.q, Matrix<const T>(cache.keys, past + tokens, columns),
      Matrix<const T>(cache.values, past + tokens, columns), attended, lse.data()));
  const Matrix<T> out(flow.out, tokens, config.hidden);
  GEMINID_RETURN_IF_ERROR(
      math.Copy(resources, Matrix<const T>(flow.residual, tokens, config.hidden), out));
  return Forward<T>(resources, attended, WeightOf<T>(use, places.output), out,
                    /*accumulate=*/true);
}

template <typename T>
absl::Status AttentionSublayerBackward(const Resources& resources, const SublayerContext& context,
                                       const AttentionPlaces& places, ParameterUse& use,
                                       const SublayerBackward<T>& flow,
                                       const AttentionActivations<T>* kept) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  GEMINID_ASSIGN_OR_RETURN(auto norm, NormBackward<T>::Create(resources, context, places.norm));
  const Matrix<T>& n = norm.n;
  const Matrix<float>& dn = norm.dn;
  GEMINID_RETURN_IF_ERROR(norm.Forward(resources, use, flow.x));

  for (const LinearPlace* layer : LinearLayersOf(places)) {
    GEMINID_RETURN_IF_ERROR(ClearAdapterGradients<T>(resources, use, *layer));
  }
  AttentionSublayer<T> sublayer(resources, context, places);
  const Groups groups(context);
  GEMINID_ASSIGN_OR_RETURN(const DropoutGradient<T> dropped,
                           DropoutGradient<T>::Of(resources, context.dropout, tokens, flow.dy));
  GEMINID_ASSIGN_OR_RETURN(
      const Matrix<const T> dy,
      ReadByWeights<T>(resources, Matrix<const T>(dropped.data, tokens, hidden)));
  GEMINID_ASSIGN_OR_RETURN(const Matrix<const T> read, ReadByWeights<T>(resources, n));
  GEMINID_ASSIGN_OR_RETURN(const bool adds, norm.Begin(resources, flow.dy));
  for (size_t i = 0; i < groups.count(); ++i) {
    GEMINID_RETURN_IF_ERROR(sublayer.GroupBackward(use, groups.At(i), read, dy, dn, adds, kept));
  }
  GEMINID_RETURN_IF_ERROR(BackwardBias<T>(resources, dy, places.output, use));
  GEMINID_RETURN_IF_ERROR(SumOverRanks(resources, context, dn));
  return norm.Finish(resources, use, flow);
}

#define GEMINID_INSTANTIATE(T)                                                               \
  template struct AttentionActivations<T>;                                                   \
  template absl::Status AttentionSublayerForward(                                            \
      const Resources&, const SublayerContext&, const AttentionPlaces&, const ParameterUse&, \
      const SublayerForward<T>&, const AttentionActivations<T>*);                            \
  template absl::Status AttentionSublayerExtend(                                             \
      const Resources&, const SublayerContext&, const AttentionPlaces&, const ParameterUse&, \
      const SublayerForward<T>&, const LayerKeyValueCache<T>&);                              \
  template absl::Status AttentionSublayerBackward(                                           \
      const Resources&, const SublayerContext&, const AttentionPlaces&, ParameterUse&,       \
      const SublayerBackward<T>&, const AttentionActivations<T>*);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
