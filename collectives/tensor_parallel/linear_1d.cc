#include "collectives/tensor_parallel/linear_1d.h"

#include <span>

#include "base/status_macros.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::collectives {
namespace {

class Linear1D : public ParallelLinear {
 public:
  Linear1D(TensorGroups& groups, const LinearOptions& options, const LinearBlocks& blocks,
           LinearScratch& scratch)
      : ParallelLinear(options, blocks),
        ranks_(groups.Along(GridAxis::kColumn)),
        is_cut_(groups.grid().mode() == TensorMode::k1DSequence),
        scratch_(scratch),
        part_{options.shape.tokens, blocks.x.columns.count, blocks.y.columns.count} {}

 private:
  bool first() const { return options().role == LinearRole::kFirst; }

  // All tokens of what this rank may have some of.
  absl::StatusOr<const float*> Whole(const float* cut, Scratch place, size_t columns) {
    if (!is_cut_) return cut;
    const std::span<float> whole = scratch_.Floats(place, part_.tokens * columns);
    const size_t own = whole.size() / static_cast<size_t>(ranks_.WorldSize());
    GEMINID_RETURN_IF_ERROR(ranks_.AllGather(std::span(cut, own), whole));
    return whole.data();
  }

  // The sum over the ranks of what `compute` writes: of all tokens, or cut again.
  template <class Compute>
  absl::Status Summed(float* out, size_t columns, const Compute& compute) {
    const std::span<float> partial =
        is_cut_ ? scratch_.Floats(Scratch::kPartial, part_.tokens * columns)
                : std::span<float>(out, part_.tokens * columns);
    GEMINID_RETURN_IF_ERROR(compute(partial.data()));
    if (!is_cut_) return ranks_.AllReduce(partial, partial);
    const size_t own = partial.size() / static_cast<size_t>(ranks_.WorldSize());
    return ranks_.ReduceScatter(partial, std::span<float>(out, own));
  }

  absl::Status DoForward(const float* x, const float* w, const float* bias, float* y) override {
    if (first()) {
      GEMINID_ASSIGN_OR_RETURN(x, Whole(x, Scratch::kX, part_.in));
      GEMINID_RETURN_IF_ERROR(scratch_.products().Forward(part_, x, w, y, Into::kOverwrite));
    } else {
      GEMINID_RETURN_IF_ERROR(Summed(y, part_.out, [&](float* sum) {
        return scratch_.products().Forward(part_, x, w, sum, Into::kOverwrite);
      }));
    }
    if (!options().bias) return absl::OkStatus();
    return kernels::FromKernel(kernels::BiasAdd(blocks().y.rows.count, part_.out, bias, y), "bias");
  }

  absl::Status DoBackward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                          float* db) override {
    const auto input = [&](float* out) {
      return scratch_.products().BackwardInput(part_, dy, w, out, Into::kOverwrite);
    };
    if (first()) {
      GEMINID_ASSIGN_OR_RETURN(x, Whole(x, Scratch::kX, part_.in));
      GEMINID_RETURN_IF_ERROR(Summed(dx, part_.in, input));
    } else {
      GEMINID_ASSIGN_OR_RETURN(dy, Whole(dy, Scratch::kX, part_.out));
      GEMINID_RETURN_IF_ERROR(input(dx));
    }
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardWeight(part_, dy, x, dw, Into::kOverwrite));
    if (!options().bias) return absl::OkStatus();
    return scratch_.products().BackwardBias(part_.tokens, part_.out, dy, db);
  }

  Communicator& ranks_;
  const bool is_cut_;  // by tokens, outside of the pair
  LinearScratch& scratch_;
  const LinearShape part_;
};

}  // namespace

std::unique_ptr<ParallelLinear> MakeLinear1D(TensorGroups& groups, const LinearOptions& options,
                                             const LinearBlocks& blocks, LinearScratch& scratch) {
  return std::make_unique<Linear1D>(groups, options, blocks, scratch);
}

}  // namespace geminid::collectives
