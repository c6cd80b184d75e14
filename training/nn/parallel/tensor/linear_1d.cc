#include "training/nn/parallel/tensor/linear_1d.h"

#include <span>
#include <string_view>

#include "base/status_macros.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::collectives {
namespace {

class Linear1D : public ParallelLinear {
 public:
  Linear1D(TensorGroups& groups, const LinearOptions& options, const LinearBlocks& blocks,
           LinearScratch& scratch)
      : ParallelLinear(groups, options, blocks),
        parts_(static_cast<size_t>(groups.grid().side())),
        is_cut_(groups.grid().mode() == TensorMode::k1DSequence),
        scratch_(scratch),
        part_{options.shape.tokens, blocks.x.columns.count, blocks.y.columns.count} {}

 private:
  Communicator& ranks() { return groups().Along(GridAxis::kColumn); }
  bool first() const { return options().role == LinearRole::kFirst; }

  // Memory for all tokens, if this rank has only some of them outside of the pair.
  absl::StatusOr<FloatBlock> Whole(std::string_view what, size_t columns) {
    return is_cut_ ? scratch_.Take(what, part_.tokens * columns) : FloatBlock();
  }

  // Gathers all tokens from the ranks' parts; `matrix` then points to the result.
  Exchange Gathering(const float*& matrix, const FloatBlock& whole) const {
    const std::span own(matrix, whole.size() / parts_);
    matrix = whole.data();
    return [own, all = whole.all()](Communicator& ranks) { return ranks.AllGather(own, all); };
  }

  // Where this rank's contribution to a sum over the ranks goes, for all tokens.
  std::span<float> Partial(float* out, size_t columns, const FloatBlock& whole) const {
    return is_cut_ ? whole.all() : std::span<float>(out, part_.tokens * columns);
  }

  // Sums over the ranks. Each rank gets all tokens, or with partitioned tokens its own.
  Exchange Summing(std::span<float> partial, float* out) const {
    if (!is_cut_) return [=](Communicator& ranks) { return ranks.AllReduce(partial, partial); };
    const std::span<float> own(out, partial.size() / parts_);
    return [=](Communicator& ranks) { return ranks.ReduceScatter(partial, own); };
  }

  absl::Status DoForward(const float* x, const float* w, const float* bias, float* y) override {
    if (first()) {
      GEMINID_ASSIGN_OR_RETURN(const FloatBlock all, Whole("X of all tokens", part_.in));
      if (is_cut_) GEMINID_RETURN_IF_ERROR(Gathering(x, all)(ranks()));
      GEMINID_RETURN_IF_ERROR(scratch_.products().Forward(part_, x, w, y, Into::kOverwrite));
    } else {
      GEMINID_ASSIGN_OR_RETURN(const FloatBlock all, Whole("a part of the sum Y", part_.out));
      const std::span<float> sum = Partial(y, part_.out, all);
      GEMINID_RETURN_IF_ERROR(
          scratch_.products().Forward(part_, x, w, sum.data(), Into::kOverwrite));
      GEMINID_RETURN_IF_ERROR(Summing(sum, y)(ranks()));
    }
    if (!options().bias) return absl::OkStatus();
    return kernels::FromKernel(kernels::BiasAdd(blocks().y.rows.count, part_.out, bias, y), "bias");
  }

  absl::Status DoBackward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                          float* db) override {
    LocalProducts& products = scratch_.products();
    if (!first()) {  // both products need all of dY
      GEMINID_ASSIGN_OR_RETURN(const FloatBlock all, Whole("dY of all tokens", part_.out));
      if (is_cut_) GEMINID_RETURN_IF_ERROR(Gathering(dy, all)(ranks()));
      GEMINID_RETURN_IF_ERROR(products.BackwardInput(part_, dy, w, dx, Into::kOverwrite));
      return BackwardParameters(x, dy, dw, db);
    }
    // Gathers X during the product for dX, and sums dX during the product for dW.
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock all_x, Whole("X of all tokens", part_.in));
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock all_dx, Whole("a part of the sum dX", part_.in));
    const std::span<float> partial = Partial(dx, part_.in, all_dx);
    Begun gathered;
    if (is_cut_) gathered = groups().Begin(GridAxis::kColumn, Gathering(x, all_x));
    GEMINID_RETURN_IF_ERROR(products.BackwardInput(part_, dy, w, partial.data(), Into::kOverwrite));
    const Begun summed = groups().Begin(GridAxis::kColumn, Summing(partial, dx));
    GEMINID_RETURN_IF_ERROR(gathered.Wait());
    GEMINID_RETURN_IF_ERROR(BackwardParameters(x, dy, dw, db));
    return summed.Wait();
  }

  absl::Status BackwardParameters(const float* x, const float* dy, float* dw, float* db) {
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardWeight(part_, dy, x, dw, Into::kOverwrite));
    if (!options().bias) return absl::OkStatus();
    return scratch_.products().BackwardBias(part_.tokens, part_.out, dy, db);
  }

  const size_t parts_;
  const bool is_cut_;  // tokens are partitioned outside of the pair
  LinearScratch& scratch_;
  const LinearShape part_;
};

}  // namespace

std::unique_ptr<ParallelLinear> MakeLinear1D(TensorGroups& groups, const LinearOptions& options,
                                             const LinearBlocks& blocks, LinearScratch& scratch) {
  return std::make_unique<Linear1D>(groups, options, blocks, scratch);
}

}  // namespace geminid::collectives
