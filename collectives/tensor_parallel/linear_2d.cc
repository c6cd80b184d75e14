#include "collectives/tensor_parallel/linear_2d.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/status_macros.h"
#include "collectives/tensor_parallel/ahead.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::collectives {
namespace {

// The rank in row i and column j holds X_ij, Y_ij and W_ij, of input features i and output features
// j. Sums over t, the step:
//   Y_ij  = X_it W_tj^T    X_it comes along the row, W_tj along the column
//   dX_it = dY_ij W_tj     W_tj comes along the column; the sum over j goes to column t of the row
//   dW_tj = dY_ij^T X_it   X_it comes along the row; the sum over i goes to row t of the column
class Linear2D : public ParallelLinear {
 public:
  Linear2D(TensorGroups& groups, const LinearOptions& options, const LinearBlocks& blocks,
           LinearScratch& scratch)
      : ParallelLinear(options, blocks),
        along_row_(groups.Along(GridAxis::kColumn)),
        along_column_(groups.Along(GridAxis::kRow)),
        depths_(groups.Along(GridAxis::kDepth)),
        side_(groups.grid().side()),
        scratch_(scratch),
        part_{blocks.x.rows.count, blocks.x.columns.count, blocks.y.columns.count} {}

 private:
  using Pair = std::array<std::span<float>, 2>;  // of this step and the next

  // Both of a pair are there before a thread fetches into one of them.
  Pair Xs() {
    return {scratch_.Floats(Scratch::kX, blocks().x.elements()),
            scratch_.Floats(Scratch::kNextX, blocks().x.elements())};
  }
  Pair Ws() {
    return {scratch_.Floats(Scratch::kW, blocks().w.elements()),
            scratch_.Floats(Scratch::kNextW, blocks().w.elements())};
  }
  static std::span<float> Of(const Pair& pair, int step) {
    return pair[static_cast<size_t>(step) % 2];
  }

  // The step's block, from the rank at `step` of `ranks`.
  static absl::Status Fetch(Communicator& ranks, const float* own, const Pair& pair, int step) {
    const std::span<float> block = Of(pair, step);
    if (ranks.Rank() == step) std::copy_n(own, block.size(), block.begin());
    return ranks.Broadcast(block, step);
  }

  absl::Status DoForward(const float* x, const float* w, const float* bias, float* y) override {
    const Pair xs = Xs(), ws = Ws();
    GEMINID_RETURN_IF_ERROR(FetchAhead(
        side_,
        [&](int step) {
          const absl::Status fetched = Fetch(along_row_, x, xs, step);
          return fetched.ok() ? Fetch(along_column_, w, ws, step) : fetched;
        },
        [&](int step) {
          return scratch_.products().Forward(part_, Of(xs, step).data(), Of(ws, step).data(), y,
                                             step == 0 ? Into::kOverwrite : Into::kAdd);
        }));
    if (!options().bias) return absl::OkStatus();
    const std::span<float> whole = scratch_.Floats(Scratch::kBias, part_.out);
    GEMINID_RETURN_IF_ERROR(along_column_.AllGather(std::span(bias, blocks().bias.count), whole));
    return kernels::FromKernel(kernels::BiasAdd(part_.tokens, part_.out, whole.data(), y), "bias");
  }

  absl::Status DoBackward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                          float* db) override {
    GEMINID_RETURN_IF_ERROR(BackwardInput(w, dy, dx));
    GEMINID_RETURN_IF_ERROR(BackwardWeight(x, dy, dw));
    return options().bias ? BackwardBias(dy, std::span(db, blocks().bias.count)) : absl::OkStatus();
  }

  absl::Status BackwardInput(const float* w, const float* dy, float* dx) {
    const Pair ws = Ws();
    const std::span<float> partial = scratch_.Floats(Scratch::kPartial, blocks().x.elements());
    return FetchAhead(
        side_, [&](int step) { return Fetch(along_column_, w, ws, step); },
        [&](int step) -> absl::Status {
          GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardInput(
              part_, dy, Of(ws, step).data(), partial.data(), Into::kOverwrite));
          return along_row_.Reduce(partial, std::span(dx, partial.size()), step);
        });
  }

  absl::Status BackwardWeight(const float* x, const float* dy, float* dw) {
    const Pair xs = Xs();
    const std::span<float> partial = scratch_.Floats(Scratch::kPartial, blocks().w.elements());
    const absl::Status summed = FetchAhead(
        side_, [&](int step) { return Fetch(along_row_, x, xs, step); },
        [&](int step) -> absl::Status {
          GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardWeight(
              part_, dy, Of(xs, step).data(), partial.data(), Into::kOverwrite));
          return along_column_.Reduce(partial, std::span(dw, partial.size()), step);
        });
    GEMINID_RETURN_IF_ERROR(summed);
    const std::span<float> sum(dw, partial.size());
    return depths_.AllReduce(sum, sum);
  }

  absl::Status BackwardBias(const float* dy, std::span<float> db) {
    const std::span<float> whole = scratch_.Floats(Scratch::kBias, part_.out);
    GEMINID_RETURN_IF_ERROR(
        scratch_.products().BackwardBias(part_.tokens, part_.out, dy, whole.data()));
    GEMINID_RETURN_IF_ERROR(along_column_.ReduceScatter(whole, db));
    return depths_.AllReduce(db, db);
  }

  Communicator& along_row_;     // ranks of this row, by column
  Communicator& along_column_;  // ranks of this column, by row
  Communicator& depths_;
  const int side_;
  LinearScratch& scratch_;
  const LinearShape part_;
};

}  // namespace

std::unique_ptr<ParallelLinear> MakeLinear2D(TensorGroups& groups, const LinearOptions& options,
                                             const LinearBlocks& blocks, LinearScratch& scratch) {
  return std::make_unique<Linear2D>(groups, options, blocks, scratch);
}

}  // namespace geminid::collectives
