#include "training/nn/parallel/tensor/linear_3d.h"

#include <span>

#include "base/status_macros.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::collectives {
namespace {

// A rank multiplies X, gathered over `input`, by W, gathered over `weight`. The sum over the input
// features is scattered over `output`.
class Linear3D : public ParallelLinear {
 public:
  Linear3D(TensorGroups& groups, const LinearOptions& options, const LinearBlocks& blocks,
           LinearScratch& scratch)
      : ParallelLinear(groups, options, blocks),
        input_(options.role == LinearRole::kFirst ? GridAxis::kInput : GridAxis::kOutput),
        output_(options.role == LinearRole::kFirst ? GridAxis::kOutput : GridAxis::kInput),
        scratch_(scratch),
        part_{blocks.x.rows.count * static_cast<size_t>(groups.grid().side()),
              blocks.x.columns.count, blocks.y.columns.count} {}

 private:
  static constexpr GridAxis kWeight = GridAxis::kWeight;

  // The gathered matrices.
  struct Room {
    FloatBlock x, w, y;
  };
  absl::StatusOr<Room> Take() {
    Room room;
    GEMINID_ASSIGN_OR_RETURN(room.x, scratch_.Take("X gathered", part_.tokens * part_.in));
    GEMINID_ASSIGN_OR_RETURN(room.w, scratch_.Take("W gathered", part_.out * part_.in));
    GEMINID_ASSIGN_OR_RETURN(room.y, scratch_.Take("Y of all parts", part_.tokens * part_.out));
    return room;
  }

  static Exchange Gathering(const float* own, const Block& block, std::span<float> whole) {
    return [part = std::span(own, block.elements()), whole](Communicator& ranks) {
      return ranks.AllGather(part, whole);
    };
  }
  static Exchange Scattering(std::span<const float> partial, float* own, const Block& block) {
    return [partial, sum = std::span(own, block.elements())](Communicator& ranks) {
      return ranks.ReduceScatter(partial, sum);
    };
  }

  // Gathers X and W at the same time.
  absl::Status DoForward(const float* x, const float* w, const float* bias, float* y) override {
    GEMINID_ASSIGN_OR_RETURN(const Room room, Take());
    const Begun gathered_x = groups().Begin(input_, Gathering(x, blocks().x, room.x.all()));
    GEMINID_RETURN_IF_ERROR(Gathering(w, blocks().w, room.w.all())(groups().Along(kWeight)));
    GEMINID_RETURN_IF_ERROR(gathered_x.Wait());
    GEMINID_RETURN_IF_ERROR(scratch_.products().Forward(part_, room.x.data(), room.w.data(),
                                                        room.y.data(), Into::kOverwrite));
    GEMINID_RETURN_IF_ERROR(Scattering(room.y.all(), y, blocks().y)(groups().Along(output_)));
    if (!options().bias) return absl::OkStatus();
    return kernels::FromKernel(kernels::BiasAdd(blocks().y.rows.count, part_.out, bias, y), "bias");
  }

  // The three gathers run at the same time. X is also gathered during the product for dX. The sum
  // of dX runs during the product for dW.
  absl::Status DoBackward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                          float* db) override {
    GEMINID_ASSIGN_OR_RETURN(const Room room, Take());
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock partial,
                             scratch_.Take("a part of the sum dX", part_.tokens * part_.in));
    const Begun gathered_dy = groups().Begin(output_, Gathering(dy, blocks().y, room.y.all()));
    const Begun gathered_w = groups().Begin(kWeight, Gathering(w, blocks().w, room.w.all()));
    const Begun gathered_x = groups().Begin(input_, Gathering(x, blocks().x, room.x.all()));
    GEMINID_RETURN_IF_ERROR(gathered_dy.Wait());
    Begun summed_db;
    if (options().bias) {
      GEMINID_ASSIGN_OR_RETURN(summed_db, BackwardBias(room.y.data(), db));
    }
    GEMINID_RETURN_IF_ERROR(gathered_w.Wait());
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardInput(part_, room.y.data(), room.w.data(),
                                                              partial.data(), Into::kOverwrite));
    const Begun scattered_dx = groups().Begin(input_, Scattering(partial.all(), dx, blocks().x));
    GEMINID_RETURN_IF_ERROR(gathered_x.Wait());
    // W is no longer needed, so its buffer takes this rank's contribution to dW.
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardWeight(part_, room.y.data(), room.x.data(),
                                                               room.w.data(), Into::kOverwrite));
    GEMINID_RETURN_IF_ERROR(
        groups().Begin(kWeight, Scattering(room.w.all(), dw, blocks().w)).Wait());
    GEMINID_RETURN_IF_ERROR(summed_db.Wait());
    return scattered_dx.Wait();
  }

  // Sums over all rows of dY, which are already gathered.
  absl::StatusOr<Begun> BackwardBias(const float* dy, float* db) {
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardBias(part_.tokens, part_.out, dy, db));
    return groups().Begin(kWeight, [sum = std::span(db, part_.out)](Communicator& ranks) {
      return ranks.AllReduce(sum, sum);
    });
  }

  const GridAxis input_, output_;
  LinearScratch& scratch_;
  const LinearShape part_;  // of the gathered blocks
};

}  // namespace

std::unique_ptr<ParallelLinear> MakeLinear3D(TensorGroups& groups, const LinearOptions& options,
                                             const LinearBlocks& blocks, LinearScratch& scratch) {
  return std::make_unique<Linear3D>(groups, options, blocks, scratch);
}

}  // namespace geminid::collectives
