// What products read, T: float or kernels::BFloat16. What they give is fp32, and so are sums of it
// over ranks. Where T is float, nothing here copies anything.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_OPERANDS_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_OPERANDS_H_

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "geminid/buffer.h"
#include "kernels/runtime/common/bfloat16.h"
#include "training/nn/parallel/layer_math.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/tensor/linear_scratch.h"

namespace geminid::collectives {

// Spans of them are exchanged as the buffers that they are.
template <>
struct DTypeOfElement<kernels::BFloat16> : std::integral_constant<DType, DType::kBFloat16> {};

// Values as another type: rounded operands, or operands as fp32.
template <typename To>
class Converted {
 public:
  template <typename From>
  static absl::StatusOr<Converted> Of(LinearScratch& scratch, std::string_view what,
                                      std::span<const From> values) {
    Converted made;
    if constexpr (std::is_same_v<From, To>) {
      made.values_ = values;
    } else {
      GEMINID_ASSIGN_OR_RETURN(made.storage_, scratch.Take<To>(what, values.size()));
      if constexpr (std::is_same_v<To, float>) {
        GEMINID_RETURN_IF_ERROR(
            scratch.math().template Of<From>().Widen(values, made.storage_.data()));
      } else {
        GEMINID_RETURN_IF_ERROR(
            scratch.math().template Of<To>().Round(values, made.storage_.data()));
      }
      made.values_ = made.storage_.all();
    }
    return made;
  }

  std::span<const To> all() const { return values_; }

 private:
  ElementBlock<To> storage_;
  std::span<const To> values_;
};

// fp32 results that are kept as T.
template <typename T>
class RoundedResults {
 public:
  // `to` outlives this.
  static absl::StatusOr<RoundedResults> For(LinearScratch& scratch, std::string_view what,
                                            std::span<T> to) {
    RoundedResults made;
    made.math_ = &scratch.math();
    made.to_ = to;
    if constexpr (std::is_same_v<T, float>) {
      made.values_ = to;
    } else {
      GEMINID_ASSIGN_OR_RETURN(made.storage_, scratch.Take(what, to.size()));
      made.values_ = made.storage_.all();
    }
    return made;
  }

  std::span<float> all() const { return values_; }
  // Leaves them in their place.
  absl::Status Round() const {
    if constexpr (std::is_same_v<T, float>) {
      return absl::OkStatus();
    } else {
      return math_->Of<T>().Round(values_, to_.data());
    }
  }

 private:
  LayerMath* math_ = nullptr;
  std::span<T> to_;
  FloatBlock storage_;
  std::span<float> values_;
};

// Room for operands that come from other ranks and, with `sums`, for as many fp32 sums when the
// operands are not needed any more.
template <typename T>
class ExchangeBuffer {
 public:
  static absl::StatusOr<ExchangeBuffer> Take(LinearScratch& scratch, std::string_view what,
                                             size_t elements, bool sums) {
    ExchangeBuffer room;
    room.elements_ = elements;
    GEMINID_ASSIGN_OR_RETURN(room.bytes_, scratch.Take<std::byte>(what, Bytes(elements, sums)));
    return room;
  }
  static size_t Bytes(size_t elements, bool sums) {
    return elements * (sums ? sizeof(float) : sizeof(T));
  }

  std::span<T> operands() const { return {reinterpret_cast<T*>(bytes_.data()), elements_}; }
  std::span<float> sums() const { return {reinterpret_cast<float*>(bytes_.data()), elements_}; }

 private:
  ElementBlock<std::byte> bytes_;
  size_t elements_ = 0;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_OPERANDS_H_
