// The arithmetic on one rank's blocks, in the memory of the device that computes the layers. The
// host computes at once. A GPU queues the work in the order of a stream
// (training/nn/gpu_layer_math.h). The headers in kernels/ say what each function computes.
//
// For every call: addresses are in the layers' memory, and workspaces come from it. INTERNAL: a
// kernel refused its arguments. RESOURCE_EXHAUSTED: there is no memory for a workspace.
#ifndef GEMINID_TRAINING_NN_PARALLEL_LAYER_MATH_H_
#define GEMINID_TRAINING_NN_PARALLEL_LAYER_MATH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "kernels/model/activation/swiglu.h"
#include "kernels/model/attention/attention.h"
#include "kernels/model/attention/merge_attention.h"
#include "kernels/model/cross_entropy/cross_entropy_part.h"
#include "kernels/model/embedding/embedding.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/model/normalisation/norm_part.h"
#include "kernels/model/rotary/rotary.h"
#include "kernels/runtime/common/bfloat16.h"
#include "training/nn/parallel/memory.h"

namespace geminid::collectives {

// The table of cosines and sines of the positions of a sequence's tokens.
struct RotaryTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
};
enum class Rotation : uint8_t { kForward, kBackward };

// What depends on the type of operands, T: float or kernels::BFloat16.
template <typename T>
class OperandMath {
 public:
  virtual ~OperandMath() = default;

  // c (+)= op(a) op(b), in fp32 and without a bias.
  virtual absl::Status Multiply(const kernels::MatmulShape& shape, const T* a, const T* b,
                                float* c) = 0;
  // sum = the sum of x's rows.
  virtual absl::Status ColumnSum(size_t rows, size_t columns, const T* x, float* sum) = 0;

  virtual absl::Status Widen(std::span<const T> from, float* to) = 0;
  virtual absl::Status Round(std::span<const float> from, T* to) = 0;
  // sum += values, in fp32.
  virtual absl::Status AddWide(std::span<const T> values, float* sum) = 0;
  // sum += values, rounded to T.
  virtual absl::Status AddRounded(std::span<const float> values, T* sum) = 0;
  // Copy some columns of a matrix, whose rows are `stride` elements apart, to or from a dense one.
  virtual absl::Status WidenRows(size_t rows, size_t columns, const T* from, size_t stride,
                                 float* to) = 0;
  virtual absl::Status RoundRows(size_t rows, size_t columns, const float* from, T* to,
                                 size_t stride) = 0;
  // to[columns, rows] = the transpose of from[rows, columns].
  virtual absl::Status Transpose(size_t rows, size_t columns, const T* from, T* to) = 0;
  virtual absl::Status TransposeRounded(size_t rows, size_t columns, const float* from, T* to) = 0;

  virtual absl::Status GeluForward(const T* x, size_t count, T* y) = 0;
  virtual absl::Status GeluBackward(const T* dy, const T* x, size_t count, T* dx) = 0;
  virtual absl::Status SwigluForward(const kernels::SwigluShape& shape, const T* gate, const T* up,
                                     T* y) = 0;
  virtual absl::Status SwigluBackward(const kernels::SwigluShape& shape, const T* dy, const T* gate,
                                      const T* up, T* dgate, T* dup) = 0;

  virtual absl::Status Rotate(Rotation rotation, const kernels::RotaryShape& shape,
                              const RotaryTable& table, T* x) = 0;
  virtual absl::Status AttentionForward(const kernels::AttentionShape& shape,
                                        kernels::HeadsView<const T> q,
                                        kernels::HeadsView<const T> k,
                                        kernels::HeadsView<const T> v, kernels::HeadsView<T> out,
                                        float* lse) = 0;
  virtual absl::Status AttentionBackward(const kernels::AttentionShape& shape,
                                         const kernels::AttentionSaved<T>& saved,
                                         kernels::HeadsView<T> dq, kernels::HeadsView<T> dk,
                                         kernels::HeadsView<T> dv) = 0;
};

// One thread at a time.
class LayerMath {
 public:
  virtual ~LayerMath() = default;

  // Whether the layers' memory is the host's.
  virtual bool on_host() const = 0;
  template <typename T>
  OperandMath<T>& Of() {
    if constexpr (std::is_same_v<T, float>) {
      return OfFloat();
    } else {
      return OfBFloat16();
    }
  }

  virtual absl::Status Copy(const void* from, size_t bytes, void* to) = 0;
  // Copies to host memory, and waits for all queued work.
  virtual absl::Status Download(const void* from, size_t bytes, void* to) = 0;
  // Copies from host memory. The caller may change `from` when this returns.
  virtual absl::Status Upload(const void* from, size_t bytes, void* to) = 0;
  // Adds `bias` to each row of x.
  virtual absl::Status AddBias(size_t rows, size_t columns, const float* bias, float* x) = 0;

  // kernels/model/attention/merge_attention.h
  virtual absl::Status MergeAttention(const kernels::MergeShape& shape, const float* other,
                                      const float* other_lse, float* out, float* lse) = 0;

  // --- norms: kernels/model/normalisation/norm_part.h ---
  virtual absl::Status NormSum(const kernels::NormPart& part, const float* x, float* sum) = 0;
  virtual absl::Status NormSquares(const kernels::NormPart& part, const float* x, const float* mean,
                                   float* squares) = 0;
  virtual absl::Status NormMeans(size_t columns, std::span<float> sums) = 0;
  virtual absl::Status NormInverseRoots(float epsilon, std::span<float> values) = 0;
  struct NormValues {
    const float* mean = nullptr;
    const float* rstd = nullptr;
    const float* gamma = nullptr;
    const float* beta = nullptr;
  };
  virtual absl::Status NormForward(const kernels::NormPart& part, const float* x,
                                   const NormValues& values, float* y) = 0;
  virtual absl::Status NormGradientSums(const kernels::NormPart& part,
                                        const kernels::NormPartBackwardArgs& args, float* sum_gx,
                                        float* sum_g) = 0;
  virtual absl::Status NormBackward(const kernels::NormPart& part,
                                    const kernels::NormPartBackwardArgs& args, const float* mean_gx,
                                    const float* mean_g,
                                    const kernels::NormPartGradients& gradients) = 0;

  // --- tables: kernels/model/embedding/embedding.h ---
  virtual absl::Status EmbeddingForward(const kernels::EmbeddingShape& shape, const int32_t* ids,
                                        const float* table, float* y) = 0;
  virtual absl::Status EmbeddingBackward(const kernels::EmbeddingShape& shape, const int32_t* ids,
                                         const float* dy, float* dtable) = 0;

  // --- the loss: kernels/model/cross_entropy/cross_entropy_part.h ---
  virtual absl::Status LogitsMax(const kernels::CrossEntropyPart& part, const float* logits,
                                 float* max) = 0;
  virtual absl::Status LogitsSums(const kernels::CrossEntropyPart& part, const float* logits,
                                  const int32_t* targets, const float* max, float* sums,
                                  float* at_target) = 0;
  virtual absl::Status LogitsGradient(const kernels::CrossEntropyPart& part, const float* logits,
                                      const int32_t* targets, const float* max, const float* sums,
                                      float grad_scale, float* dlogits) = 0;

 private:
  virtual OperandMath<float>& OfFloat() = 0;
  virtual OperandMath<kernels::BFloat16>& OfBFloat16() = 0;
};

// Where layers compute: the arithmetic, and memory for what it works on.
struct LayerPlace {
  LayerMath& math;
  Memory& memory;
};

// Values of the layers' memory that the host reads: on the host the values themselves, else a copy.
template <typename T>
class OnHost {
 public:
  static absl::StatusOr<OnHost> Of(LayerMath& math, std::span<const T> values) {
    OnHost made;
    made.values_ = values;
    if (math.on_host()) return made;
    made.copy_.resize(values.size());
    GEMINID_RETURN_IF_ERROR(math.Download(values.data(), values.size_bytes(), made.copy_.data()));
    made.values_ = made.copy_;
    return made;
  }
  // Move-only: `values_` may view `copy_`, whose elements do not move with it.
  OnHost(OnHost&&) noexcept = default;
  OnHost& operator=(OnHost&&) noexcept = default;

  const T& operator[](size_t index) const { return values_[index]; }

 private:
  OnHost() = default;

  std::span<const T> values_;
  std::vector<T> copy_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_LAYER_MATH_H_
