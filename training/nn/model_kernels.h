// The table of kernels with which a model computes. Host kernels run at once; GPU kernels run in
// the order of a stream. The headers in kernels/ say what each kernel computes.
//
// For every call: addresses are in that device's memory, and scratch comes from the workspace.
// Later calls may free or overwrite memory that queued work uses. The host may read results only
// after Download. Download also returns errors that a GPU reports late.
#ifndef GEMINID_TRAINING_NN_MODEL_KERNELS_H_
#define GEMINID_TRAINING_NN_MODEL_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "base/pages.h"
#include "kernels/model/attention/attention.h"
#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/model/embedding/embedding.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/model/rotary/rotary.h"
#include "kernels/runtime/common/bfloat16.h"
#include "training/nn/blocks.h"
#include "training/nn/dropout.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {

// The shape of a LayerNorm, which has a shift, or of an RMSNorm.
struct NormShape {
  size_t rows = 0;
  size_t cols = 0;
  float epsilon = 0;
  bool shifts = false;
};

// P is the type of gain and shift and of their gradients.
template <typename T, typename P>
struct NormForwardArgs {
  const T* x = nullptr;
  const P* gain = nullptr;
  const P* shift = nullptr;
  T* y = nullptr;
  float* statistics = nullptr;  // rstd[rows], then, with a shift, mean[rows]
};

// `dx` may be `dy` or the residual, which is nullable. The gradients of gain and shift are both
// null, or both set.
template <typename T, typename P>
struct NormBackwardArgs {
  const T* dy = nullptr;
  const T* x = nullptr;
  const P* gain = nullptr;
  const float* statistics = nullptr;
  const T* residual = nullptr;
  T* dx = nullptr;
  P* dgain = nullptr;
  P* dshift = nullptr;
};

enum class PassDirection { kForward, kBackward };

// Kernels for weights and activations of type T.
template <typename T>
class KernelsOf {
 public:
  virtual ~KernelsOf() = default;

  // --- products ---
  virtual absl::Status Multiply(const Resources& resources, const kernels::MatmulShape& shape,
                                const T* a, const T* b, const T* bias, T* c) const = 0;
  // c = scale op(A) op(B), scaled in fp32, without a bias and without adding to c.
  virtual absl::Status MultiplyScaled(const Resources& resources, const kernels::MatmulShape& shape,
                                      float scale, const T* a, const T* b, T* c) const = 0;
  // Multiplies into fp32, without a bias.
  virtual absl::Status MultiplyWide(const Resources& resources, const kernels::MatmulShape& shape,
                                    const T* a, const T* b, float* c) const = 0;
  // The sum of the rows of x, which is dense.
  virtual absl::Status ColumnSum(const Resources& resources, Matrix<const T> x, T* sum) const = 0;

  // --- moves ---
  // Copies between matrices of one shape.
  virtual absl::Status Copy(const Resources& resources, Matrix<const T> from,
                            Matrix<T> to) const = 0;
  virtual absl::Status Zero(const Resources& resources, void* data, size_t bytes) const = 0;
  virtual absl::Status Round(const Resources& resources, const float* in, size_t count,
                             T* out) const = 0;
  virtual absl::Status Widen(const Resources& resources, const T* in, size_t count,
                             float* out) const = 0;
  // Adds `bias`, of type T, to every row of x. x is dense.
  virtual absl::Status AddBias(const Resources& resources, const T* bias,
                               Matrix<float> x) const = 0;

  // --- normalisation and activation ---
  virtual absl::Status NormForward(const Resources& resources, const NormShape& shape,
                                   const NormForwardArgs<T, T>& args) const = 0;
  virtual absl::Status NormBackward(const Resources& resources, const NormShape& shape,
                                    const NormBackwardArgs<T, T>& args) const = 0;
  // The norms with gain and shift in fp32.
  virtual absl::Status NormForwardWide(const Resources& resources, const NormShape& shape,
                                       const NormForwardArgs<T, float>& args) const = 0;
  virtual absl::Status NormBackwardWide(const Resources& resources, const NormShape& shape,
                                        const NormBackwardArgs<T, float>& args) const = 0;
  // The activation of `input`. If `up` is not null: SwiGLU with `input` as its gate. Dense.
  virtual absl::Status Activate(const Resources& resources, Activation activation,
                                Matrix<const T> input, const T* up, T* out) const = 0;
  // Replaces `input`, and `up`, by their gradients.
  virtual absl::Status ActivateBackward(const Resources& resources, Activation activation,
                                        Matrix<const T> dy, T* input, T* up) const = 0;

  // --- attention ---
  // Rotates whole heads of queries, keys or gradients by their positions.
  virtual absl::Status Rotate(const Resources& resources, PassDirection turn,
                              const kernels::RotaryShape& shape, const RotaryTables& tables,
                              T* x) const = 0;
  // Chooses the implementation of attention for a shape, if there is a choice. Without this call,
  // the first pass of the shape chooses.
  virtual absl::Status PrepareAttention(const Resources& /*resources*/,
                                        const kernels::AttentionShape& /*shape*/) const {
    return absl::OkStatus();
  }
  virtual absl::Status AttentionForward(const Resources& resources,
                                        const kernels::AttentionShape& shape, Matrix<const T> q,
                                        Matrix<const T> k, Matrix<const T> v, Matrix<T> out,
                                        float* lse) const = 0;
  virtual absl::Status AttentionBackward(const Resources& resources,
                                         const kernels::AttentionShape& shape,
                                         const kernels::AttentionSaved<T>& saved, Matrix<T> dq,
                                         Matrix<T> dk, Matrix<T> dv) const = 0;

  // --- the model's ends ---
  // `positions` is nullable.
  virtual absl::Status EmbeddingForward(const Resources& resources,
                                        const kernels::EmbeddingShape& shape, const int32_t* tokens,
                                        const T* table, const T* positions, size_t sequence,
                                        T* x) const = 0;
  virtual absl::Status EmbeddingBackward(const Resources& resources,
                                         const kernels::EmbeddingShape& shape,
                                         const int32_t* tokens, const T* gradient, T* table,
                                         bool accumulate) const = 0;
  virtual absl::Status PositionBackward(const Resources& resources, const MicroBatchShape& shape,
                                        Matrix<const T> gradient, T* positions,
                                        bool accumulate) const = 0;
  // The sum of the losses of rows of logits. With `gradients`, overwrites the logits with their
  // gradients, and the padding up to the stride with zeros. Writes each token's loss to
  // `token_loss` unless it is null.
  virtual absl::Status CrossEntropy(const Resources& resources, Matrix<float> logits,
                                    const int32_t* targets, float gradient_scale, bool gradients,
                                    kernels::CrossEntropyResult* result,
                                    float* token_loss) const = 0;

  // --- dropout: training/nn/dropout.h; the rows are the micro-batch's tokens ---
  virtual absl::Status Drop(const Resources& resources, const DropoutPlace& place,
                            Matrix<const T> x, T* y) const = 0;
  virtual absl::Status AddDropped(const Resources& resources, const DropoutPlace& place,
                                  Matrix<const T> x, T* sum) const = 0;

  // --- copies from and to host memory ---
  // The caller may change `from` when Upload returns.
  virtual absl::Status Upload(const Resources& resources, const void* from, size_t bytes,
                              void* to) const = 0;
  // Waits for all queued work.
  virtual absl::Status Download(const Resources& resources, const void* from, size_t bytes,
                                void* to) const = 0;
  // Upload and Download for values that are fp32 on the host, as they are exchanged between ranks.
  virtual absl::Status UploadRounded(const Resources& resources, const float* from, size_t count,
                                     T* to) const = 0;
  virtual absl::Status DownloadWidened(const Resources& resources, const T* from, size_t count,
                                       float* to) const = 0;
};

class ModelKernels {
 public:
  // The memory in which the kernels compute. In host memory an upload is a copy.
  enum class Memory { kHost, kDevice };

  // Rows of logits are a multiple of `row_alignment` elements apart.
  ModelKernels(std::unique_ptr<KernelsOf<float>> fp32,
               std::unique_ptr<KernelsOf<kernels::BFloat16>> bf16, size_t row_alignment,
               Memory memory)
      : fp32_(std::move(fp32)),
        bf16_(std::move(bf16)),
        row_alignment_(row_alignment),
        memory_(memory) {}

  template <typename T>
  const KernelsOf<T>& Of() const {
    if constexpr (std::is_same_v<T, float>) {
      return *fp32_;
    } else {
      return *bf16_;
    }
  }

  // The number of elements from one row of `words` logits, or of their gradients, to the next.
  size_t LogitStride(size_t words) const { return base::RoundUp(words, row_alignment_); }
  Memory memory() const { return memory_; }

 private:
  std::unique_ptr<KernelsOf<float>> fp32_;
  std::unique_ptr<KernelsOf<kernels::BFloat16>> bf16_;
  size_t row_alignment_;
  Memory memory_;
};

template <typename T>
const KernelsOf<T>& KernelsFor(const Resources& resources) {
  return resources.math.Of<T>();
}

// Host kernels, which run on the threads of each call. HostKernels has dense rows.
ModelKernels MakeHostKernels(size_t row_alignment);
const ModelKernels& HostKernels();

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_MODEL_KERNELS_H_
