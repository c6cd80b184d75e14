#include "collectives/tensor_parallel/linear_3d.h"

#include <span>

#include "base/status_macros.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::collectives {
namespace {

// A rank multiplies the parts that lie along its axes: X gathered over `input`, W over `weight`.
// The sum over the parts of the input features is scattered over `output`.
class Linear3D : public ParallelLinear {
 public:
  Linear3D(TensorGroups& groups, const LinearOptions& options, const LinearBlocks& blocks,
           LinearScratch& scratch)
      : ParallelLinear(options, blocks),
        input_(groups.Along(options.role == LinearRole::kFirst ? GridAxis::kInput
                                                               : GridAxis::kOutput)),
        output_(groups.Along(options.role == LinearRole::kFirst ? GridAxis::kOutput
                                                                : GridAxis::kInput)),
        weight_(groups.Along(GridAxis::kWeight)),
        scratch_(scratch),
        part_{blocks.x.rows.count * static_cast<size_t>(groups.grid().side()),
              blocks.x.columns.count, blocks.y.columns.count} {}

 private:
  std::span<float> X() { return scratch_.Floats(Scratch::kX, part_.tokens * part_.in); }
  std::span<float> W() { return scratch_.Floats(Scratch::kW, part_.out * part_.in); }
  std::span<float> Y() { return scratch_.Floats(Scratch::kNextX, part_.tokens * part_.out); }

  absl::Status GatherInputs(const float* x, const float* w) {
    GEMINID_RETURN_IF_ERROR(input_.AllGather(std::span(x, blocks().x.elements()), X()));
    return weight_.AllGather(std::span(w, blocks().w.elements()), W());
  }

  absl::Status DoForward(const float* x, const float* w, const float* bias, float* y) override {
    GEMINID_RETURN_IF_ERROR(GatherInputs(x, w));
    GEMINID_RETURN_IF_ERROR(
        scratch_.products().Forward(part_, X().data(), W().data(), Y().data(), Into::kOverwrite));
    GEMINID_RETURN_IF_ERROR(output_.ReduceScatter(Y(), std::span(y, blocks().y.elements())));
    if (!options().bias) return absl::OkStatus();
    return kernels::FromKernel(kernels::BiasAdd(blocks().y.rows.count, part_.out, bias, y), "bias");
  }

  absl::Status DoBackward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                          float* db) override {
    GEMINID_RETURN_IF_ERROR(GatherInputs(x, w));
    GEMINID_RETURN_IF_ERROR(output_.AllGather(std::span(dy, blocks().y.elements()), Y()));
    if (options().bias) {
      const std::span<float> sum(db, part_.out);
      GEMINID_RETURN_IF_ERROR(
          scratch_.products().BackwardBias(part_.tokens, part_.out, Y().data(), db));
      GEMINID_RETURN_IF_ERROR(weight_.AllReduce(sum, sum));
    }
    GEMINID_RETURN_IF_ERROR(BackwardInput(dx));
    // W is not needed any more: its place takes this rank's part of dW.
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardWeight(part_, Y().data(), X().data(),
                                                               W().data(), Into::kOverwrite));
    return weight_.ReduceScatter(W(), std::span(dw, blocks().w.elements()));
  }

  absl::Status BackwardInput(float* dx) {
    const std::span<float> partial = scratch_.Floats(Scratch::kPartial, part_.tokens * part_.in);
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardInput(part_, Y().data(), W().data(),
                                                              partial.data(), Into::kOverwrite));
    return input_.ReduceScatter(partial, std::span(dx, blocks().x.elements()));
  }

  Communicator& input_;
  Communicator& output_;
  Communicator& weight_;
  LinearScratch& scratch_;
  const LinearShape part_;  // of the gathered blocks
};

}  // namespace

std::unique_ptr<ParallelLinear> MakeLinear3D(TensorGroups& groups, const LinearOptions& options,
                                             const LinearBlocks& blocks, LinearScratch& scratch) {
  return std::make_unique<Linear3D>(groups, options, blocks, scratch);
}

}  // namespace geminid::collectives
