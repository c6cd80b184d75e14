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
        scratch_(scratch),
        part_{blocks.x.rows.count, blocks.x.columns.count, blocks.y.columns.count} {}

 private:
  bool first() const { return options().role == LinearRole::kFirst; }

  absl::Status DoForward(const float* x, const float* w, const float* bias, float* y) override {
    GEMINID_RETURN_IF_ERROR(scratch_.products().Forward(part_, x, w, y, Into::kOverwrite));
    if (!first()) {
      const std::span<float> sum(y, part_.tokens * part_.out);
      GEMINID_RETURN_IF_ERROR(ranks_.AllReduce(sum, sum));
    }
    if (!options().bias) return absl::OkStatus();
    return kernels::FromKernel(kernels::BiasAdd(part_.tokens, part_.out, bias, y), "bias");
  }

  absl::Status DoBackward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                          float* db) override {
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardInput(part_, dy, w, dx, Into::kOverwrite));
    if (first()) {
      const std::span<float> sum(dx, part_.tokens * part_.in);
      GEMINID_RETURN_IF_ERROR(ranks_.AllReduce(sum, sum));
    }
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardWeight(part_, dy, x, dw, Into::kOverwrite));
    if (!options().bias) return absl::OkStatus();
    return scratch_.products().BackwardBias(part_.tokens, part_.out, dy, db);
  }

  Communicator& ranks_;
  LinearScratch& scratch_;
  const LinearShape part_;
};

}  // namespace

std::unique_ptr<ParallelLinear> MakeLinear1D(TensorGroups& groups, const LinearOptions& options,
                                             const LinearBlocks& blocks, LinearScratch& scratch) {
  return std::make_unique<Linear1D>(groups, options, blocks, scratch);
}

}  // namespace geminid::collectives
