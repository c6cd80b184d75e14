#include "training/transformer/routed_sublayer.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "training/nn/parallel/experts/routing.h"
#include "training/transformer/host_rows.h"
#include "training/transformer/norm_layer.h"
#include "training/transformer/output_sum.h"
#include "training/transformer/routed_rows.h"
#include "training/transformer/routed_spread.h"

namespace geminid::trainer {
namespace {

using collectives::RoutedRow;
using collectives::Routing;

// One expert's rows.
struct ExpertRows {
  std::span<const RoutedRow> rows;
  size_t first = 0;     // the first row's index among the rows of all experts
  size_t computed = 0;  // the number of rows, with rows of zeros

  static ExpertRows Of(const Routing& routing, size_t expert) {
    const size_t first = routing.first[expert], count = routing.RowsOf(expert);
    return {std::span(routing.rows).subspan(first, count), first,
            RowsComputed(count, routing.tokens)};
  }
};

// to = the rows of `from`, in host memory, for the expert's tokens, then zeros.
template <typename T>
absl::Status Gather(const Resources& resources, collectives::Memory& memory,
                    const ExpertRows& expert, Matrix<const T> from, Matrix<T> to) {
  GEMINID_ASSIGN_OR_RETURN(const auto written, HostRows<T>::Unread(resources, memory, to));
  for (size_t r = 0; r < expert.rows.size(); ++r) {
    std::copy_n(from.Rows(expert.rows[r].token, 1).data, from.cols, written.rows().Rows(r, 1).data);
  }
  const size_t rest = to.rows - expert.rows.size();
  std::fill_n(written.rows().Rows(expert.rows.size(), rest).data, rest * to.cols, T());
  return written.GiveBack(resources);
}

// Adds each row, times weight(row), to the row of its token. In host memory.
template <typename WeightOfRow>
void Scatter(const ExpertRows& expert, Matrix<const float> from, WeightOfRow weight,
             Matrix<float> to) {
  for (size_t r = 0; r < expert.rows.size(); ++r) {
    const float* const row = from.Rows(r, 1).data;
    float* const sum = to.Rows(expert.rows[r].token, 1).data;
    const float times = weight(r);
    for (size_t i = 0; i < from.cols; ++i) sum[i] += times * row[i];
  }
}

// sum += the weighted outputs of the experts for n.
template <typename T>
absl::Status ExpertsForward(const Resources& resources, const SublayerContext& context,
                            const RoutedPlaces& places, const ExpertSource& experts,
                            const Routing& routing, Matrix<const T> n, Matrix<float> sum,
                            const MlpActivations<T>* kept) {
  GEMINID_ASSIGN_OR_RETURN(auto x_rows, Scratch<T>::Allocate(resources, n.size()));
  GEMINID_ASSIGN_OR_RETURN(auto y_rows, Scratch<float>::Allocate(resources, n.size()));
  collectives::Memory& memory = MemoryOfRows(context);
  GEMINID_ASSIGN_OR_RETURN(const auto read, HostRows<const T>::Of(resources, memory, n));
  GEMINID_ASSIGN_OR_RETURN(const auto sums, HostRows<float>::Of(resources, memory, sum));
  for (size_t e = 0; e < places.experts.size(); ++e) {
    const ExpertPlaces& expert = places.experts[e];
    GEMINID_ASSIGN_OR_RETURN(auto expert_use, experts.source.Use(experts.pass, expert.all));
    const ExpertRows rows = ExpertRows::Of(routing, e);
    if (!rows.rows.empty()) {
      const Matrix<T> in(x_rows.data(), rows.computed, n.cols);
      const Matrix<float> y(y_rows.data(), rows.computed, n.cols);
      GEMINID_RETURN_IF_ERROR(Gather<T>(resources, memory, rows, read.rows(), in));
      GEMINID_RETURN_IF_ERROR(
          KernelsFor<T>(resources).Zero(resources, y.data, y.size() * sizeof(float)));
      GEMINID_RETURN_IF_ERROR(MlpForward<T>(resources, expert, *expert_use,
                                            context.tiling.mlp_columns, in, y,
                                            RowsOf(kept, rows.first, rows.rows.size())));
      GEMINID_ASSIGN_OR_RETURN(const auto computed, HostRows<float>::Of(resources, memory, y));
      Scatter(
          rows, computed.rows(), [&](size_t r) { return routing.WeightOf(rows.rows[r]); },
          sums.rows());
    }
    GEMINID_RETURN_IF_ERROR(expert_use->Finish());
  }
  return sums.GiveBack(resources);
}

// The backward pass of all experts.
template <typename T>
struct ExpertsBackward {
  const Resources& resources;
  const SublayerContext& context;
  const RoutedPlaces& places;
  const ExpertSource& experts;
  const Routing& routing;
  // In host memory; gradients are added to dn.
  const Matrix<const T> n, dy;
  const Matrix<float> dn;
  const MlpActivations<T>* kept;
  // Memory for the rows of one expert.
  Scratch<T> x_rows, dy_rows;
  Scratch<float> dx_rows;

  absl::Status Allocate() {
    GEMINID_ASSIGN_OR_RETURN(x_rows, Scratch<T>::Allocate(resources, n.size()));
    GEMINID_ASSIGN_OR_RETURN(dy_rows, Scratch<T>::Allocate(resources, n.size()));
    GEMINID_ASSIGN_OR_RETURN(dx_rows, Scratch<float>::Allocate(resources, n.size()));
    return absl::OkStatus();
  }

  // Fills the gradients of the routing weights, [tokens, choices].
  absl::Status Run(size_t index, std::span<float> weight_gradients) const {
    const ExpertPlaces& expert = places.experts[index];
    const ExpertRows rows = ExpertRows::Of(routing, index);
    GEMINID_ASSIGN_OR_RETURN(auto use, experts.source.Use(experts.pass, expert.all));
    if (rows.rows.empty()) {
      GEMINID_RETURN_IF_ERROR(ZeroGradients<T>(resources, expert, *use));
    } else {
      GEMINID_RETURN_IF_ERROR(RunRows(expert, rows, *use, weight_gradients));
    }
    GEMINID_RETURN_IF_ERROR(GradientsWritten(*use, expert.all));
    return use->Finish();
  }

 private:
  absl::Status RunRows(const ExpertPlaces& expert, const ExpertRows& rows, ParameterUse& use,
                       std::span<float> weight_gradients) const {
    const Matrix<T> x(x_rows.data(), rows.computed, n.cols);
    const Matrix<T> dout(dy_rows.data(), rows.computed, n.cols);
    const Matrix<float> dx(dx_rows.data(), rows.computed, n.cols);
    collectives::Memory& memory = MemoryOfRows(context);
    GEMINID_RETURN_IF_ERROR(Gather<T>(resources, memory, rows, n, x));
    GEMINID_RETURN_IF_ERROR(Gather<T>(resources, memory, rows, dy, dout));
    std::vector<float> weights(rows.computed), gradients(rows.computed);
    std::ranges::transform(rows.rows, weights.begin(),
                           [this](const RoutedRow& row) { return routing.WeightOf(row); });
    GEMINID_RETURN_IF_ERROR(MlpBackward<T>(resources, expert, use, context.tiling.mlp_columns, x,
                                           dout, dx, RowsOf(kept, rows.first, rows.rows.size()),
                                           {weights.data(), gradients.data(), &memory}));
    GEMINID_ASSIGN_OR_RETURN(const auto computed, HostRows<float>::Of(resources, memory, dx));
    Scatter(
        rows, computed.rows(), [](size_t) { return 1.0F; }, dn);
    for (size_t r = 0; r < rows.rows.size(); ++r) {
      const RoutedRow& row = rows.rows[r];
      weight_gradients[row.token * routing.options.choices + row.choice] = gradients[r];
    }
    return absl::OkStatus();
  }
};

}  // namespace

template <typename T>
absl::Status RoutedSublayerForward(const Resources& resources, const SublayerContext& context,
                                   const RoutedPlaces& places, const ParameterUse& use,
                                   const ExpertSource& experts, const T* x, T* out,
                                   const MlpActivations<T>* kept) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(resources, tokens * hidden));
  const Matrix<T> n(storage.data(), tokens, hidden);
  GEMINID_RETURN_IF_ERROR(Normalise<T>(resources, context, places.norm, use, x, n.data));
  GEMINID_ASSIGN_OR_RETURN(auto sum, OutputSum<T>::Begin(resources, context, x, out));
  GEMINID_ASSIGN_OR_RETURN(const Routing routing,
                           RouteTokens<T>(resources, context, places, use, n));
  if (context.experts != nullptr) {
    GEMINID_RETURN_IF_ERROR(
        SpreadForward<T>(resources, context, places, experts, routing, n, sum.values()));
  } else {
    GEMINID_RETURN_IF_ERROR(
        ExpertsForward<T>(resources, context, places, experts, routing, n, sum.values(), kept));
  }
  return sum.Finish(resources, nullptr, n.data);  // n is no longer needed
}

template <typename T>
absl::Status RoutedSublayerBackward(const Resources& resources, const SublayerContext& context,
                                    const RoutedPlaces& places, ParameterUse& use,
                                    const ExpertSource& experts, const T* x, T* gradient,
                                    const MlpActivations<T>* kept) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  GEMINID_ASSIGN_OR_RETURN(auto norm, NormBackward<T>::Create(resources, context, places.norm));
  const Matrix<T>& n = norm.n;
  const Matrix<float>& dn = norm.dn;
  GEMINID_ASSIGN_OR_RETURN(const DropoutGradient<T> dropped,
                           DropoutGradient<T>::Of(resources, context.dropout, tokens, gradient));
  const Matrix<const T> dy(dropped.data, tokens, hidden);
  GEMINID_RETURN_IF_ERROR(norm.Forward(resources, use, x));
  GEMINID_RETURN_IF_ERROR(
      KernelsFor<T>(resources).Zero(resources, dn.data, dn.size() * sizeof(float)));
  GEMINID_ASSIGN_OR_RETURN(const Routing routing,
                           RouteTokens<T>(resources, context, places, use, n));
  std::vector<float> weight_gradients(routing.weights.size());
  if (context.experts != nullptr) {
    GEMINID_RETURN_IF_ERROR(SpreadBackward<T>(resources, context, places, experts, routing, n, dy,
                                              dn, weight_gradients));
  } else {
    collectives::Memory& memory = MemoryOfRows(context);
    GEMINID_ASSIGN_OR_RETURN(const auto ns, HostRows<const T>::Of(resources, memory, n));
    GEMINID_ASSIGN_OR_RETURN(const auto dys, HostRows<const T>::Of(resources, memory, dy));
    GEMINID_ASSIGN_OR_RETURN(const auto dns, HostRows<float>::Of(resources, memory, dn));
    ExpertsBackward<T> backward = {resources,  context,    places, experts, routing, ns.rows(),
                                   dys.rows(), dns.rows(), kept,   {},      {},      {}};
    GEMINID_RETURN_IF_ERROR(backward.Allocate());
    for (size_t e = 0; e < places.experts.size(); ++e) {
      GEMINID_RETURN_IF_ERROR(backward.Run(e, weight_gradients));
    }
    GEMINID_RETURN_IF_ERROR(dns.GiveBack(resources));
  }
  GEMINID_RETURN_IF_ERROR(
      RouterBackward<T>(resources, context, places, use, routing, weight_gradients, n, dn));
  return norm.Finish(resources, use,
                     {.x = x, .dy = gradient, .residual = gradient, .dx = gradient});
}

#define GEMINID_INSTANTIATE(T)                                                            \
  template absl::Status RoutedSublayerForward(                                            \
      const Resources&, const SublayerContext&, const RoutedPlaces&, const ParameterUse&, \
      const ExpertSource&, const T*, T*, const MlpActivations<T>*);                       \
  template absl::Status RoutedSublayerBackward(                                           \
      const Resources&, const SublayerContext&, const RoutedPlaces&, ParameterUse&,       \
      const ExpertSource&, const T*, T*, const MlpActivations<T>*);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
