#include "training/transformer/routed_spread.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "base/status_macros.h"
#include "training/nn/parallel/experts/row_exchange.h"
#include "training/nn/workspace_memory.h"
#include "training/transformer/host_rows.h"
#include "training/transformer/mlp_columns.h"
#include "training/transformer/routed_rows.h"

namespace geminid::trainer {
namespace {

using collectives::FloatBlock;
using collectives::RoutedRow;
using collectives::Routing;
using collectives::RowExchange;

// Rows of the model, in host memory, as they travel: in fp32.
template <typename T>
void Pack(Matrix<const T> from, size_t row, float* to) {
  const T* const values = from.Rows(row, 1).data;
  for (size_t i = 0; i < from.cols; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      to[i] = values[i];
    } else {
      to[i] = values[i].ToFloat();
    }
  }
}

// to = columns [first, first + to.cols) of the rows of a buffer, times `factor`, then zeros.
template <typename T>
absl::Status Unpack(const Resources& resources, collectives::Memory& memory,
                    Matrix<const float> rows, size_t first, float factor, Matrix<T> to) {
  GEMINID_ASSIGN_OR_RETURN(const auto written, HostRows<T>::Unread(resources, memory, to));
  T* next = written.rows().data;
  for (size_t r = 0; r < rows.rows; ++r) {
    const float* const from = rows.Rows(r, 1).data + first;
    for (size_t i = 0; i < to.cols; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        *next++ = factor * from[i];
      } else {
        *next++ = T::FromFloat(factor * from[i]);
      }
    }
  }
  std::fill_n(next, (to.rows - rows.rows) * to.cols, T());
  return written.GiveBack(resources);
}

// Allocates buffers for the rows of an exchange, from the context's memory if it has some. If that
// fails, tells the other ranks.
class RowMemory {
 public:
  RowMemory(const Resources& resources, const SublayerContext& context)
      : resources_(resources), workspace_(resources.workspace), context_(context) {}

  collectives::Memory& memory() {
    return context_.cut.memory == nullptr ? workspace_ : *context_.cut.memory;
  }
  absl::StatusOr<FloatBlock> Take(size_t rows, size_t width) {
    absl::StatusOr<FloatBlock> taken =
        FloatBlock::Allocate(memory(), "rows of experts", rows * width);
    (void)collectives::TellIfRefused(*context_.experts, taken.status());
    return taken;
  }
  // For the host; a GPU's values are copied.
  template <typename T>
  absl::StatusOr<HostRows<T>> Read(Matrix<T> matrix) {
    auto read = HostRows<T>::Of(resources_, memory(), matrix);
    (void)collectives::TellIfRefused(*context_.experts, read.status());
    return read;
  }

 private:
  const Resources& resources_;
  WorkspaceMemory workspace_;
  const SublayerContext& context_;
};

// The rows of one of this rank's experts in a buffer of the exchange.
Matrix<float> RowsAt(const RowExchange& exchange, size_t expert, size_t width,
                     const FloatBlock& buffer) {
  const size_t first = exchange.FirstOf(expert);
  return {buffer.data() + first * width, exchange.FirstOf(expert + 1) - first, width};
}

}  // namespace

template <typename T>
absl::Status SpreadForward(const Resources& resources, const SublayerContext& context,
                           const RoutedPlaces& places, const ExpertSource& experts,
                           const Routing& routing, Matrix<const T> n, Matrix<float> sum) {
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  const size_t hidden = n.cols;
  const size_t most = n.rows * static_cast<size_t>(context.experts->WorldSize());
  GEMINID_ASSIGN_OR_RETURN(RowExchange exchange, RowExchange::Make(routing, *context.experts));
  RowMemory memory(resources, context);
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock at_tokens, memory.Take(routing.rows.size(), hidden));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock at_experts,
                           memory.Take(exchange.rows_at_experts(), hidden));
  GEMINID_ASSIGN_OR_RETURN(const auto ns, memory.Read(n));
  for (size_t r = 0; r < routing.rows.size(); ++r) {
    Pack(ns.rows(), routing.rows[r].token, at_tokens.data() + r * hidden);
  }
  GEMINID_RETURN_IF_ERROR(
      exchange.ToExperts(hidden, at_tokens.all(), at_experts.all(), memory.memory()));
  GEMINID_ASSIGN_OR_RETURN(auto x_rows, Scratch<T>::Allocate(resources, most * hidden));
  GEMINID_ASSIGN_OR_RETURN(auto y_rows, Scratch<float>::Allocate(resources, most * hidden));
  for (size_t e = 0; e < places.experts.size(); ++e) {
    GEMINID_ASSIGN_OR_RETURN(auto use, experts.source.Use(experts.pass, places.experts[e].all));
    const Matrix<float> rows = RowsAt(exchange, e, hidden, at_experts);
    if (rows.rows > 0) {
      const size_t computed = RowsComputed(rows.rows, most);
      const Matrix<T> x(x_rows.data(), computed, hidden);
      const Matrix<float> y(y_rows.data(), computed, hidden);
      GEMINID_RETURN_IF_ERROR(Unpack<T>(resources, memory.memory(), rows, 0, 1, x));
      GEMINID_RETURN_IF_ERROR(math.Zero(resources, y.data, y.size() * sizeof(float)));
      GEMINID_RETURN_IF_ERROR(
          MlpForward<T>(resources, places.experts[e], *use, context.tiling.mlp_columns, x, y, {}));
      GEMINID_RETURN_IF_ERROR(
          math.Download(resources, y.data, rows.size() * sizeof(float), rows.data));
    }
    GEMINID_RETURN_IF_ERROR(use->Finish());
  }
  GEMINID_RETURN_IF_ERROR(
      exchange.ToTokens(hidden, at_experts.all(), at_tokens.all(), memory.memory()));
  GEMINID_ASSIGN_OR_RETURN(const auto sums, memory.Read(sum));
  for (size_t r = 0; r < routing.rows.size(); ++r) {
    float* const to = sums.rows().Rows(routing.rows[r].token, 1).data;
    const float weight = routing.WeightOf(routing.rows[r]);
    for (size_t i = 0; i < hidden; ++i) to[i] += weight * at_tokens.data()[r * hidden + i];
  }
  return sums.GiveBack(resources);
}

namespace {

// The backward pass of one of this rank's experts. For each row it receives x, dy and the routing
// weight, and returns dx and the weight's gradient. The mean over the ranks counts an expert's
// gradients as often as there are ranks, so they are computed from dy divided by that number. dx
// and the weights' gradients are multiplied by it afterwards.
template <typename T>
struct SpreadExpert {
  const Resources& resources;
  const SublayerContext& context;
  const size_t hidden;
  const size_t most;  // the most rows of an expert
  RowMemory& memory;
  Scratch<T> x_rows, dy_rows;
  Scratch<float> dx_rows;

  absl::Status Allocate() {
    GEMINID_ASSIGN_OR_RETURN(x_rows, Scratch<T>::Allocate(resources, most * hidden));
    GEMINID_ASSIGN_OR_RETURN(dy_rows, Scratch<T>::Allocate(resources, most * hidden));
    GEMINID_ASSIGN_OR_RETURN(dx_rows, Scratch<float>::Allocate(resources, most * hidden));
    return absl::OkStatus();
  }

  absl::Status Run(const ExpertPlaces& expert, ParameterUse& use, Matrix<const float> there,
                   Matrix<float> back) const {
    const size_t computed = RowsComputed(there.rows, most);
    const auto ranks = static_cast<float>(context.experts->WorldSize());
    const Matrix<T> x(x_rows.data(), computed, hidden), dy(dy_rows.data(), computed, hidden);
    const Matrix<float> dx(dx_rows.data(), computed, hidden);
    collectives::Memory& copies = memory.memory();
    GEMINID_RETURN_IF_ERROR(Unpack<T>(resources, copies, there, 0, 1, x));
    GEMINID_RETURN_IF_ERROR(Unpack<T>(resources, copies, there, hidden, 1 / ranks, dy));
    std::vector<float> weights(computed), gradients(computed);
    for (size_t r = 0; r < there.rows; ++r) weights[r] = there.Rows(r, 1).data[2 * hidden];
    GEMINID_RETURN_IF_ERROR(MlpBackward<T>(resources, expert, use, context.tiling.mlp_columns, x,
                                           dy, dx, {},
                                           {weights.data(), gradients.data(), &copies}));
    GEMINID_ASSIGN_OR_RETURN(const auto dxs, memory.Read(dx.Rows(0, there.rows)));
    for (size_t r = 0; r < there.rows; ++r) {
      const float* const from = dxs.rows().Rows(r, 1).data;
      float* const to = back.Rows(r, 1).data;
      for (size_t i = 0; i < hidden; ++i) to[i] = ranks * from[i];
      to[hidden] = ranks * gradients[r];
    }
    return absl::OkStatus();
  }
};

}  // namespace

template <typename T>
absl::Status SpreadBackward(const Resources& resources, const SublayerContext& context,
                            const RoutedPlaces& places, const ExpertSource& experts,
                            const Routing& routing, Matrix<const T> n, Matrix<const T> dy,
                            Matrix<float> dn, std::span<float> weight_gradients) {
  const size_t hidden = n.cols, there = 2 * hidden + 1, back = hidden + 1;
  const size_t most = n.rows * static_cast<size_t>(context.experts->WorldSize());
  GEMINID_ASSIGN_OR_RETURN(RowExchange exchange, RowExchange::Make(routing, *context.experts));
  RowMemory memory(resources, context);
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock at_tokens, memory.Take(routing.rows.size(), there));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock at_experts,
                           memory.Take(exchange.rows_at_experts(), there));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock results, memory.Take(exchange.rows_at_experts(), back));
  GEMINID_ASSIGN_OR_RETURN(const auto ns, memory.Read(n));
  GEMINID_ASSIGN_OR_RETURN(const auto dys, memory.Read(dy));
  for (size_t r = 0; r < routing.rows.size(); ++r) {
    const RoutedRow& row = routing.rows[r];
    float* const to = at_tokens.data() + r * there;
    Pack(ns.rows(), row.token, to);
    Pack(dys.rows(), row.token, to + hidden);
    to[2 * hidden] = routing.WeightOf(row);
  }
  GEMINID_RETURN_IF_ERROR(
      exchange.ToExperts(there, at_tokens.all(), at_experts.all(), memory.memory()));
  SpreadExpert<T> expert = {resources, context, hidden, most, memory, {}, {}, {}};
  GEMINID_RETURN_IF_ERROR(expert.Allocate());
  for (size_t e = 0; e < places.experts.size(); ++e) {
    GEMINID_ASSIGN_OR_RETURN(auto use, experts.source.Use(experts.pass, places.experts[e].all));
    const Matrix<float> rows = RowsAt(exchange, e, there, at_experts);
    if (rows.rows > 0) {
      GEMINID_RETURN_IF_ERROR(
          expert.Run(places.experts[e], *use, rows, RowsAt(exchange, e, back, results)));
    } else {
      GEMINID_RETURN_IF_ERROR(ZeroGradients<T>(resources, places.experts[e], *use));
    }
    GEMINID_RETURN_IF_ERROR(GradientsWritten(*use, places.experts[e].all));
    GEMINID_RETURN_IF_ERROR(use->Finish());
  }
  const std::span<float> came_back = at_tokens.all().first(routing.rows.size() * back);
  GEMINID_RETURN_IF_ERROR(exchange.ToTokens(back, results.all(), came_back, memory.memory()));
  GEMINID_ASSIGN_OR_RETURN(const auto dns, memory.Read(dn));
  for (size_t r = 0; r < routing.rows.size(); ++r) {
    const RoutedRow& row = routing.rows[r];
    const float* const from = came_back.data() + r * back;
    float* const to = dns.rows().Rows(row.token, 1).data;
    for (size_t i = 0; i < hidden; ++i) to[i] += from[i];
    weight_gradients[row.token * routing.options.choices + row.choice] = from[hidden];
  }
  return dns.GiveBack(resources);
}

#define GEMINID_INSTANTIATE(T)                                                                  \
  template absl::Status SpreadForward(const Resources&, const SublayerContext&,                 \
                                      const RoutedPlaces&, const ExpertSource&, const Routing&, \
                                      Matrix<const T>, Matrix<float>);                          \
  template absl::Status SpreadBackward(                                                         \
      const Resources&, const SublayerContext&, const RoutedPlaces&, const ExpertSource&,       \
      const Routing&, Matrix<const T>, Matrix<const T>, Matrix<float>, std::span<float>);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
