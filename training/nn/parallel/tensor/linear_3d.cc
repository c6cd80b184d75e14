#include "training/nn/parallel/tensor/linear_3d.h"

#include <span>

#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

// A rank multiplies the parts that lie along its axes: X gathered over `input`, W over `weight`.
// The sum over the parts of the input features is scattered over `output`.
template <typename T>
class Linear3D final : public ParallelLinear<T> {
 public:
  Linear3D(TensorGroups& around, const LinearOptions& layer, const LinearBlocks& mine,
           LinearScratch& scratch)
      : ParallelLinear<T>(around, layer, mine),
        input_(layer.role == LinearRole::kFirst ? GridAxis::kInput : GridAxis::kOutput),
        output_(layer.role == LinearRole::kFirst ? GridAxis::kOutput : GridAxis::kInput),
        scratch_(scratch),
        part_{mine.x.rows.count * static_cast<size_t>(around.grid().side()), mine.x.columns.count,
              mine.y.columns.count} {}

 private:
  using ParallelLinear<T>::blocks;
  using ParallelLinear<T>::groups;
  using ParallelLinear<T>::options;

  static constexpr GridAxis kWeight = GridAxis::kWeight;

  static Exchange Gathering(const T* own, const Block& block, std::span<T> whole) {
    return [part = std::span(own, block.elements()), whole](AxisRanks& ranks) {
      return ranks.AllGather(part, whole);
    };
  }
  static Exchange Scattering(std::span<const float> partial, float* own, const Block& block) {
    return [partial, sum = std::span(own, block.elements())](AxisRanks& ranks) {
      return ranks.ReduceScatter(partial, sum);
    };
  }

  // X and W come at the same time.
  absl::Status DoForward(const T* x, const T* w, const float* bias, float* y) override {
    GEMINID_ASSIGN_OR_RETURN(const ElementBlock<T> all_x,
                             scratch_.Take<T>("X gathered", part_.tokens * part_.in));
    GEMINID_ASSIGN_OR_RETURN(const ElementBlock<T> all_w,
                             scratch_.Take<T>("W gathered", part_.out * part_.in));
    GEMINID_ASSIGN_OR_RETURN(const FloatBlock partial,
                             scratch_.Take("a part of the sum Y", part_.tokens * part_.out));
    const ScopedPending gathered_x = groups().Begin(input_, Gathering(x, blocks().x, all_x.all()));
    GEMINID_RETURN_IF_ERROR(Gathering(w, blocks().w, all_w.all())(groups().Along(kWeight)));
    GEMINID_RETURN_IF_ERROR(gathered_x.Wait());
    GEMINID_RETURN_IF_ERROR(scratch_.products().Forward<T>(part_, all_x.data(), all_w.data(),
                                                           partial.data(), OutputMode::kOverwrite));
    GEMINID_RETURN_IF_ERROR(Scattering(partial.all(), y, blocks().y)(groups().Along(output_)));
    if (!options().bias) return absl::OkStatus();
    return scratch_.math().AddBias(blocks().y.rows.count, part_.out, bias, y);
  }

  // The three gathers travel beside each other, X's also beside the product for dX, whose sum
  // travels beside the product for dW.
  absl::Status DoBackward(const T* x, const T* w, const T* dy, float* dx, float* dw,
                          float* db) override {
    GEMINID_ASSIGN_OR_RETURN(const Room room, Take());
    const FloatBlock& partial = room.partial;
    const std::span<T> all_w = room.w.operands();
    const ScopedPending gathered_dy =
        groups().Begin(output_, Gathering(dy, blocks().y, room.dy.all()));
    const ScopedPending gathered_w = groups().Begin(kWeight, Gathering(w, blocks().w, all_w));
    const ScopedPending gathered_x = groups().Begin(input_, Gathering(x, blocks().x, room.x.all()));
    GEMINID_RETURN_IF_ERROR(gathered_dy.Wait());
    ScopedPending summed_db;
    if (options().bias) {
      GEMINID_ASSIGN_OR_RETURN(summed_db, BackwardBias(room.dy.data(), db));
    }
    GEMINID_RETURN_IF_ERROR(gathered_w.Wait());
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardInput<T>(
        part_, room.dy.data(), all_w.data(), partial.data(), OutputMode::kOverwrite));
    const ScopedPending scattered_dx =
        groups().Begin(input_, Scattering(partial.all(), dx, blocks().x));
    GEMINID_RETURN_IF_ERROR(gathered_x.Wait());
    // W is not needed any more: its place takes this rank's part of dW.
    const std::span<float> all_dw = room.w.sums();
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardWeight<T>(
        part_, room.dy.data(), room.x.data(), all_dw.data(), OutputMode::kOverwrite));
    GEMINID_RETURN_IF_ERROR(groups().Begin(kWeight, Scattering(all_dw, dw, blocks().w)).Wait());
    GEMINID_RETURN_IF_ERROR(summed_db.Wait());
    return scattered_dx.Wait();
  }

  // What the backward pass works in.
  struct Room {
    ElementBlock<T> x, dy;
    ExchangeBuffer<T> w;
    FloatBlock partial;
  };
  absl::StatusOr<Room> Take() {
    Room room;
    const size_t x = part_.tokens * part_.in, w = part_.out * part_.in;
    GEMINID_ASSIGN_OR_RETURN(room.x, scratch_.Take<T>("X gathered", x));
    GEMINID_ASSIGN_OR_RETURN(room.w,
                             ExchangeBuffer<T>::Take(scratch_, "W gathered", w, /*sums=*/true));
    GEMINID_ASSIGN_OR_RETURN(room.dy, scratch_.Take<T>("dY gathered", part_.tokens * part_.out));
    GEMINID_ASSIGN_OR_RETURN(room.partial, scratch_.Take("a part of the sum dX", x));
    return room;
  }

  // Of all rows of dY, which are there.
  absl::StatusOr<ScopedPending> BackwardBias(const T* dy, float* db) {
    GEMINID_RETURN_IF_ERROR(scratch_.products().BackwardBias<T>(part_.tokens, part_.out, dy, db));
    return groups().Begin(kWeight, [sum = std::span(db, part_.out)](AxisRanks& ranks) {
      return ranks.AllReduce(sum, sum, ReduceOp::kSum);
    });
  }

  const GridAxis input_, output_;
  LinearScratch& scratch_;
  const LinearShape part_;  // of the gathered blocks
};

}  // namespace

template <typename T>
std::unique_ptr<ParallelLinear<T>> MakeLinear3D(TensorGroups& groups, const LinearOptions& options,
                                                const LinearBlocks& blocks,
                                                LinearScratch& scratch) {
  return std::make_unique<Linear3D<T>>(groups, options, blocks, scratch);
}
template std::unique_ptr<ParallelLinear<float>> MakeLinear3D(TensorGroups&, const LinearOptions&,
                                                             const LinearBlocks&, LinearScratch&);
template std::unique_ptr<ParallelLinear<kernels::BFloat16>> MakeLinear3D(TensorGroups&,
                                                                         const LinearOptions&,
                                                                         const LinearBlocks&,
                                                                         LinearScratch&);

}  // namespace geminid::collectives
