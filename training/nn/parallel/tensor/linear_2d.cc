#include "training/nn/parallel/tensor/linear_2d.h"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

// The rank in row i and column j holds X_ij, Y_ij and W_ij, of input features i and output features
// j. Sums over the step t:
//   Y_ij  = X_it W_tj^T    X_it comes along the row, W_tj along the column
//   dX_it = dY_ij W_tj     W_tj comes along the column; the sum over j goes to column t of the row
//   dW_tj = dY_ij^T X_it   X_it comes along the row; the sum over i goes to row t of the column
template <typename T>
class Linear2D final : public ParallelLinear<T> {
 public:
  Linear2D(TensorGroups& around, const LinearOptions& layer, const LinearBlocks& mine,
           LinearScratch& scratch)
      : ParallelLinear<T>(around, layer, mine),
        side_(around.grid().side()),
        scratch_(scratch),
        part_{mine.x.rows.count, mine.x.columns.count, mine.y.columns.count} {}

 private:
  using ParallelLinear<T>::blocks;
  using ParallelLinear<T>::groups;
  using ParallelLinear<T>::options;

  // Of the ranks of this row, by column, and of this column, by row.
  static constexpr GridAxis kAlongRow = GridAxis::kColumn, kAlongColumn = GridAxis::kRow;

  // Of this step and the next.
  using Pair = std::array<std::span<T>, 2>;
  using Partials = std::array<std::span<float>, 2>;
  using Sums = std::array<ScopedPending, 2>;  // under way

  // The buffers of a pass.
  struct Room {
    ExchangeBuffer<T> x, next_x, w, next_w;
    FloatBlock partial, bias;

    Pair xs() const { return {x.operands(), next_x.operands()}; }
    Pair ws() const { return {w.operands(), next_w.operands()}; }
    // Along the rows nothing comes into the place of the next X before these sums are gone.
    Partials dxs() const { return {partial.all(), next_x.sums()}; }
    // When W is not needed any more.
    Partials dws() const { return {w.sums(), next_w.sums()}; }
  };
  enum class PassDirection : uint8_t { kForward, kBackward };
  absl::StatusOr<Room> Take(PassDirection turn) {
    Room room;
    const auto take = [this](std::string_view what, const Block& block, bool sums) {
      return ExchangeBuffer<T>::Take(scratch_, what, block.elements(), sums);
    };
    const bool sums = turn == PassDirection::kBackward;
    GEMINID_ASSIGN_OR_RETURN(room.x, take("a step's X", blocks().x, /*sums=*/false));
    GEMINID_ASSIGN_OR_RETURN(room.next_x, take("the next step's X", blocks().x, sums));
    GEMINID_ASSIGN_OR_RETURN(room.w, take("a step's W", blocks().w, sums));
    GEMINID_ASSIGN_OR_RETURN(room.next_w, take("the next step's W", blocks().w, sums));
    GEMINID_ASSIGN_OR_RETURN(
        room.partial, scratch_.Take("a part of the sum dX", sums ? blocks().x.elements() : 0));
    GEMINID_ASSIGN_OR_RETURN(room.bias,
                             scratch_.Take("a column's bias", options().bias ? part_.out : 0));
    return room;
  }
  static size_t Of(int step) { return static_cast<size_t>(step) % 2; }

  // The step's block, from the rank at `step` of the axis.
  ScopedPending Fetch(GridAxis axis, const T* own, const Pair& pair, int step) {
    return groups().Begin(axis, [own, block = pair[Of(step)], step](AxisRanks& ranks) {
      return ranks.Broadcast(std::span(own, block.size()), block, step);
    });
  }
  // None behind the last.
  ScopedPending FetchNext(GridAxis axis, const T* own, const Pair& pair, int step) {
    return step + 1 < side_ ? Fetch(axis, own, pair, step + 1) : ScopedPending();
  }

  // Sums over the axis; the rank at `step` gets the result.
  ScopedPending Sum(GridAxis axis, std::span<const float> partial, float* sum, int step) {
    return groups().Begin(axis, [partial, sum, step](AxisRanks& ranks) {
      return ranks.Reduce(partial, std::span(sum, partial.size()), step);
    });
  }

  absl::Status DoForward(const T* x, const T* w, const float* bias, float* y) override {
    GEMINID_ASSIGN_OR_RETURN(const Room room, Take(PassDirection::kForward));
    const Pair xs = room.xs(), ws = room.ws();
    const std::span<float> whole = room.bias.all();
    ScopedPending next_x = Fetch(kAlongRow, x, xs, 0), next_w = Fetch(kAlongColumn, w, ws, 0);
    ScopedPending gathered;
    for (int step = 0; step < side_; ++step) {
      const ScopedPending fetched_x = std::exchange(next_x, FetchNext(kAlongRow, x, xs, step));
      const ScopedPending fetched_w = std::exchange(next_w, FetchNext(kAlongColumn, w, ws, step));
      if (step + 1 == side_) gathered = GatherBias(bias, whole);
      GEMINID_RETURN_IF_ERROR(fetched_x.Wait());
      GEMINID_RETURN_IF_ERROR(fetched_w.Wait());
      GEMINID_RETURN_IF_ERROR(
          scratch_.products().Forward<T>(part_, xs[Of(step)].data(), ws[Of(step)].data(), y,
                                         step == 0 ? OutputMode::kOverwrite : OutputMode::kAdd));
    }
    if (!options().bias) return absl::OkStatus();
    GEMINID_RETURN_IF_ERROR(gathered.Wait());
    return scratch_.math().AddBias(part_.tokens, part_.out, whole.data(), y);
  }

  ScopedPending GatherBias(const float* bias, std::span<float> whole) {
    if (!options().bias) return ScopedPending();
    return groups().Begin(kAlongColumn, [own = std::span(bias, blocks().bias.count),
                                         whole](AxisRanks& c) { return c.AllGather(own, whole); });
  }

  // The first X travels before the sums of dX, which share the rows with it, so that these are
  // under way beside the first product for dW.
  absl::Status DoBackward(const T* x, const T* w, const T* dy, float* dx, float* dw,
                          float* db) override {
    GEMINID_ASSIGN_OR_RETURN(const Room room, Take(PassDirection::kBackward));
    ScopedPending first_x = Fetch(kAlongRow, x, room.xs(), 0);
    ScopedPending first_w = Fetch(kAlongColumn, w, room.ws(), 0);
    Sums bias_sums, dx_sums;
    if (options().bias) {
      const std::span<float> kept(db, blocks().bias.count);
      GEMINID_RETURN_IF_ERROR(BackwardBias(dy, room.bias.all(), kept, bias_sums));
    }
    GEMINID_RETURN_IF_ERROR(BackwardInput(room, w, dy, dx, std::move(first_w), dx_sums));
    GEMINID_RETURN_IF_ERROR(BackwardWeight(room, x, dy, dw, std::move(first_x)));
    for (const Sums* sums : {&dx_sums, &bias_sums}) {
      for (const ScopedPending& sum : *sums) GEMINID_RETURN_IF_ERROR(sum.Wait());
    }
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const Room& room, const T* w, const T* dy, float* dx,
                             ScopedPending next, Sums& sums) {
    const Pair ws = room.ws();
    const Partials partials = room.dxs();
    for (int step = 0; step < side_; ++step) {
      const ScopedPending fetched = std::exchange(next, FetchNext(kAlongColumn, w, ws, step));
      ScopedPending& sum = sums[Of(step)];
      GEMINID_RETURN_IF_ERROR(sum.Wait());
      GEMINID_RETURN_IF_ERROR(fetched.Wait());
      GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardInput<T>(
          part_, dy, ws[Of(step)].data(), partials[Of(step)].data(), OutputMode::kOverwrite));
      sum = Sum(kAlongRow, partials[Of(step)], dx, step);
    }
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const Room& room, const T* x, const T* dy, float* dw,
                              ScopedPending next) {
    const Pair xs = room.xs();
    const Partials partials = room.dws();
    const int row = groups().Along(kAlongColumn).Rank();
    Sums sums;
    ScopedPending over_depth;
    for (int step = 0; step < side_; ++step) {
      const ScopedPending fetched = std::exchange(next, FetchNext(kAlongRow, x, xs, step));
      ScopedPending& sum = sums[Of(step)];
      GEMINID_RETURN_IF_ERROR(sum.Wait());
      GEMINID_RETURN_IF_ERROR(fetched.Wait());
      GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardWeight<T>(
          part_, dy, xs[Of(step)].data(), partials[Of(step)].data(), OutputMode::kOverwrite));
      sum = Sum(kAlongColumn, partials[Of(step)], dw, step);
      if (step == row) over_depth = SumOverDepth(sum, std::span(dw, blocks().w.elements()));
    }
    for (const ScopedPending& sum : sums) GEMINID_RETURN_IF_ERROR(sum.Wait());
    return over_depth.Wait();
  }

  absl::Status BackwardBias(const T* dy, std::span<float> whole, std::span<float> db, Sums& sums) {
    GEMINID_RETURN_IF_ERROR(
        scratch_.products().BackwardBias<T>(part_.tokens, part_.out, dy, whole.data()));
    sums[0] = groups().Begin(
        kAlongColumn, [whole, db](AxisRanks& ranks) { return ranks.ReduceScatter(whole, db); });
    sums[1] = SumOverDepth(sums[0], db);
    return absl::OkStatus();
  }

  // Runs after `sum` and adds up its results over the depths. Does nothing with one depth.
  ScopedPending SumOverDepth(const ScopedPending& sum, std::span<float> values) {
    if (groups().grid().depth() == 1) return ScopedPending();
    return groups().Begin(GridAxis::kDepth, [before = sum.pending(), values](AxisRanks& ranks) {
      GEMINID_RETURN_IF_ERROR(before->Wait());
      return ranks.AllReduce(values, values, ReduceOp::kSum);
    });
  }

  const int side_;
  LinearScratch& scratch_;
  const LinearShape part_;
};

}  // namespace

template <typename T>
std::unique_ptr<ParallelLinear<T>> MakeLinear2D(TensorGroups& groups, const LinearOptions& options,
                                                const LinearBlocks& blocks,
                                                LinearScratch& scratch) {
  return std::make_unique<Linear2D<T>>(groups, options, blocks, scratch);
}
template std::unique_ptr<ParallelLinear<float>> MakeLinear2D(TensorGroups&, const LinearOptions&,
                                                             const LinearBlocks&, LinearScratch&);
template std::unique_ptr<ParallelLinear<kernels::BFloat16>> MakeLinear2D(TensorGroups&,
                                                                         const LinearOptions&,
                                                                         const LinearBlocks&,
                                                                         LinearScratch&);

}  // namespace geminid::collectives
