#include "training/nn/parallel/tensor/linear_1d_sequence.h"

#include <span>

#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

// W is cut by its rows (a first layer) or by its columns (a second layer).
template <typename T>
class Linear1DSequence final : public ParallelLinear<T> {
 public:
  Linear1DSequence(TensorGroups& around, const LinearOptions& layer, const LinearBlocks& mine,
                   LinearScratch& scratch)
      : ParallelLinear<T>(around, layer, mine),
        scratch_(scratch),
        part_{layer.shape.tokens, mine.x.columns.count, mine.y.columns.count} {}

 private:
  using ParallelLinear<T>::blocks;
  using ParallelLinear<T>::groups;
  using ParallelLinear<T>::options;

  AxisRanks& ranks() { return groups().Along(GridAxis::kColumn); }
  bool first() const { return options().role == LinearRole::kFirst; }

  static Exchange Gathering(const T* own, const Block& block, std::span<T> all) {
    return [part = std::span(own, block.elements()), all](AxisRanks& ranks) {
      return ranks.AllGather(part, all);
    };
  }
  static Exchange Scattering(std::span<const float> partial, float* own, const Block& block) {
    return [partial, sum = std::span(own, block.elements())](AxisRanks& ranks) {
      return ranks.ReduceScatter(partial, sum);
    };
  }

  absl::Status DoForward(const T* x, const T* w, const float* bias, float* y) override {
    LocalProducts& products = scratch_.products();
    if (first()) {
      GEMINID_ASSIGN_OR_RETURN(const ElementBlock<T> all,
                               scratch_.Take<T>("X of all tokens", part_.tokens * part_.in));
      GEMINID_RETURN_IF_ERROR(Gathering(x, blocks().x, all.all())(ranks()));
      GEMINID_RETURN_IF_ERROR(products.Forward<T>(part_, all.data(), w, y, OutputMode::kOverwrite));
    } else {
      GEMINID_ASSIGN_OR_RETURN(const FloatBlock all,
                               scratch_.Take("a part of the sum Y", part_.tokens * part_.out));
      GEMINID_RETURN_IF_ERROR(products.Forward<T>(part_, x, w, all.data(), OutputMode::kOverwrite));
      GEMINID_RETURN_IF_ERROR(Scattering(all.all(), y, blocks().y)(ranks()));
    }
    if (!options().bias) return absl::OkStatus();
    return scratch_.math().AddBias(blocks().y.rows.count, part_.out, bias, y);
  }

  absl::Status DoBackward(const T* x, const T* w, const T* dy, float* dx, float* dw,
                          float* db) override {
    LocalProducts& products = scratch_.products();
    if (!first()) {  // both products need all of dY
      GEMINID_ASSIGN_OR_RETURN(const ElementBlock<T> all,
                               scratch_.Take<T>("dY of all tokens", part_.tokens * part_.out));
      GEMINID_RETURN_IF_ERROR(Gathering(dy, blocks().y, all.all())(ranks()));
      GEMINID_RETURN_IF_ERROR(
          products.BackwardInput<T>(part_, all.data(), w, dx, OutputMode::kOverwrite));
      return BackwardParameters(x, all.data(), dw, db);
    }
    // X comes beside the product for dX, whose sum travels beside that for dW.
    GEMINID_ASSIGN_OR_RETURN(const ElementBlock<T> all_x,
                             scratch_.Take<T>("X of all tokens", part_.tokens * part_.in));
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock partial,
                             scratch_.Take("a part of the sum dX", part_.tokens * part_.in));
    const ScopedPending gathered =
        groups().Begin(GridAxis::kColumn, Gathering(x, blocks().x, all_x.all()));
    GEMINID_RETURN_IF_ERROR(
        products.BackwardInput<T>(part_, dy, w, partial.data(), OutputMode::kOverwrite));
    const ScopedPending summed =
        groups().Begin(GridAxis::kColumn, Scattering(partial.all(), dx, blocks().x));
    GEMINID_RETURN_IF_ERROR(gathered.Wait());
    GEMINID_RETURN_IF_ERROR(BackwardParameters(all_x.data(), dy, dw, db));
    return summed.Wait();
  }

  absl::Status BackwardParameters(const T* x, const T* dy, float* dw, float* db) {
    LocalProducts& products = scratch_.products();
    GEMINID_RETURN_IF_ERROR(products.BackwardWeight<T>(part_, dy, x, dw, OutputMode::kOverwrite));
    if (!options().bias) return absl::OkStatus();
    return products.BackwardBias<T>(part_.tokens, part_.out, dy, db);
  }

  LinearScratch& scratch_;
  const LinearShape part_;
};

}  // namespace

template <typename T>
std::unique_ptr<ParallelLinear<T>> MakeLinear1DSequence(TensorGroups& groups,
                                                        const LinearOptions& options,
                                                        const LinearBlocks& blocks,
                                                        LinearScratch& scratch) {
  return std::make_unique<Linear1DSequence<T>>(groups, options, blocks, scratch);
}
template std::unique_ptr<ParallelLinear<float>> MakeLinear1DSequence(TensorGroups&,
                                                                     const LinearOptions&,
                                                                     const LinearBlocks&,
                                                                     LinearScratch&);
template std::unique_ptr<ParallelLinear<kernels::BFloat16>> MakeLinear1DSequence(
    TensorGroups&, const LinearOptions&, const LinearBlocks&, LinearScratch&);

}  // namespace geminid::collectives
