#include "training/nn/gpu_kernels.h"

#include <memory>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/library_search.h"
#include "kernels/model/activation/gelu_cuda.h"
#include "kernels/model/activation/gelu_erf_cuda.h"
#include "kernels/model/activation/relu_cuda.h"
#include "kernels/model/activation/swiglu_cuda.h"
#include "kernels/model/attention/attention_cuda.h"
#include "kernels/model/cross_entropy/cross_entropy_cuda.h"
#include "kernels/model/dropout/dropout_cuda.h"
#include "kernels/model/elementwise/bias_cuda.h"
#include "kernels/model/elementwise/copy_rows_cuda.h"
#include "kernels/model/embedding/embedding_cuda.h"
#include "kernels/model/matmul/matmul_cuda.h"
#include "kernels/model/matmul/matmul_library_cuda.h"
#include "kernels/model/normalisation/layer_norm_cuda.h"
#include "kernels/model/normalisation/rms_norm_cuda.h"
#include "kernels/model/rotary/rotary_cuda.h"
#include "kernels/numeric/cast/cast_cuda.h"
#include "kernels/runtime/common/absl_status.h"
#include "training/forecast/trainer_need.h"
#include "training/nn/gpu_attention.h"
#include "training/nn/gpu_launch.h"

namespace geminid::trainer {
namespace {

using kernels::BFloat16;
using kernels::MatmulShape;

template <typename T>
kernels::HeadsView<T> Heads(Matrix<T> matrix) {
  return {.data = matrix.data, .token_stride = matrix.stride};
}

template <typename T>
class GpuKernelsOf final : public KernelsOf<T> {
 public:
  GpuKernelsOf(GpuQueue* queue, const GpuLibraries& libraries)
      : queue_(*queue), library_(libraries.products), attention_(queue, libraries.attention) {}

  // --- products ---
  absl::Status Multiply(const Resources& resources, const MatmulShape& shape, const T* a,
                        const T* b, const T* bias, T* c) const override {
    return Product<T>(resources, shape, {.a = a, .b = b, .bias = bias, .c = c});
  }

  absl::Status MultiplyScaled(const Resources& resources, const MatmulShape& shape, float scale,
                              const T* a, const T* b, T* c) const override {
    return Product<T>(resources, shape, {.scale = scale, .a = a, .b = b, .c = c});
  }

  absl::Status MultiplyWide(const Resources& resources, const MatmulShape& shape, const T* a,
                            const T* b, float* c) const override {
    return Product<float>(resources, shape, {.a = a, .b = b, .c = c});
  }

  absl::Status ColumnSum(const Resources& resources, Matrix<const T> x, T* sum) const override {
    const size_t bytes = kernels::ColumnSumCudaWorkspaceBytes(x.rows, x.cols);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
    return Launched(kernels::ColumnSumCuda<T>(x.rows, x.cols, x.data, sum, /*accumulate=*/false,
                                              scratch.data(), bytes, stream()),
                    "ColumnSum");
  }

  // --- moves ---
  absl::Status Copy(const Resources& /*resources*/, Matrix<const T> from,
                    Matrix<T> to) const override {
    if (from.rows <= 1 || (from.stride == from.cols && to.stride == to.cols)) {
      return queue_.Copy(from.data, from.size() * sizeof(T), to.data);
    }
    return Launched(kernels::CopyRowsCuda<T>(from.rows, from.cols, from.data, from.stride, to.data,
                                             to.stride, stream()),
                    "CopyRows");
  }

  absl::Status Zero(const Resources& /*resources*/, void* data, size_t bytes) const override {
    return queue_.Zero(data, bytes);
  }

  absl::Status Round(const Resources& /*resources*/, const float* in, size_t count,
                     T* out) const override {
    if constexpr (std::is_same_v<T, float>) {
      return queue_.Copy(in, count * sizeof(float), out);
    } else {
      return Launched(kernels::CastToBFloat16Cuda(in, count, out, stream()), "CastToBFloat16");
    }
  }

  absl::Status Widen(const Resources& /*resources*/, const T* in, size_t count,
                     float* out) const override {
    if constexpr (std::is_same_v<T, float>) {
      return queue_.Copy(in, count * sizeof(float), out);
    } else {
      return Launched(kernels::CastToFloatCuda(in, count, out, stream()), "CastToFloat");
    }
  }

  absl::Status AddBias(const Resources& resources, const T* bias, Matrix<float> x) const override {
    GEMINID_ASSIGN_OR_RETURN(auto wide, Scratch<float>::Allocate(resources, x.cols));
    GEMINID_RETURN_IF_ERROR(Widen(resources, bias, x.cols, wide.data()));
    return Launched(kernels::BiasAddCuda<float>(x.rows, x.cols, wide.data(), x.data, stream()),
                    "BiasAdd");
  }

  // --- normalisation and activation ---
  absl::Status NormForward(const Resources& resources, const NormShape& shape,
                           const NormForwardArgs<T, T>& args) const override {
    return NormForwardOf(resources, shape, args);
  }
  absl::Status NormBackward(const Resources& resources, const NormShape& shape,
                            const NormBackwardArgs<T, T>& args) const override {
    return NormBackwardOf(resources, shape, args);
  }
  absl::Status NormForwardWide(const Resources& resources, const NormShape& shape,
                               const NormForwardArgs<T, float>& args) const override {
    return NormForwardOf(resources, shape, args);
  }
  absl::Status NormBackwardWide(const Resources& resources, const NormShape& shape,
                                const NormBackwardArgs<T, float>& args) const override {
    return NormBackwardOf(resources, shape, args);
  }

  absl::Status Activate(const Resources& /*resources*/, Activation activation,
                        Matrix<const T> input, const T* up, T* out) const override {
    if (up == nullptr && activation == Activation::kRelu) {
      return Launched(kernels::ReluForwardCuda<T>(input.data, input.size(), out, stream()),
                      "ReluForward");
    }
    if (up == nullptr && activation == Activation::kGeluErf) {
      return Launched(kernels::GeluErfForwardCuda<T>(input.data, input.size(), out, stream()),
                      "GeluErfForward");
    }
    if (up == nullptr) {
      return Launched(kernels::GeluForwardCuda<T>(input.data, input.size(), out, stream()),
                      "GeluForward");
    }
    return Launched(kernels::SwigluForwardCuda<T>(
                        {.rows = input.rows, .cols = input.cols, .gate_up_stride = input.cols},
                        input.data, up, out, stream()),
                    "SwigluForward");
  }

  absl::Status ActivateBackward(const Resources& /*resources*/, Activation activation,
                                Matrix<const T> dy, T* input, T* up) const override {
    if (up == nullptr && activation == Activation::kRelu) {
      return Launched(kernels::ReluBackwardCuda<T>(dy.data, input, dy.size(), input, stream()),
                      "ReluBackward");
    }
    if (up == nullptr && activation == Activation::kGeluErf) {
      return Launched(kernels::GeluErfBackwardCuda<T>(dy.data, input, dy.size(), input, stream()),
                      "GeluErfBackward");
    }
    if (up == nullptr) {
      return Launched(kernels::GeluBackwardCuda<T>(dy.data, input, dy.size(), input, stream()),
                      "GeluBackward");
    }
    return Launched(kernels::SwigluBackwardCuda<T>(
                        {.rows = dy.rows, .cols = dy.cols, .gate_up_stride = dy.cols}, dy.data,
                        input, up, input, up, stream()),
                    "SwigluBackward");
  }

  // --- attention ---
  absl::Status Rotate(const Resources& /*resources*/, PassDirection turn,
                      const kernels::RotaryShape& shape, const RotaryTables& tables,
                      T* x) const override {
    const auto rotate = turn == PassDirection::kForward ? kernels::RotaryForwardCuda<T>
                                                        : kernels::RotaryBackwardCuda<T>;
    return Launched(rotate(shape, tables.cos, tables.sin, x, stream()), "Rotary");
  }

  absl::Status PrepareAttention(const Resources& resources,
                                const kernels::AttentionShape& shape) const override {
    if constexpr (std::is_same_v<T, BFloat16>) {
      return attention_.PlanFor(resources, shape).status();
    } else {
      return absl::OkStatus();
    }
  }

  absl::Status AttentionForward(const Resources& resources, const kernels::AttentionShape& shape,
                                Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
                                Matrix<T> out, float* lse) const override {
    if constexpr (std::is_same_v<T, BFloat16>) {
      GEMINID_ASSIGN_OR_RETURN(
          const bool done,
          attention_.Forward(resources, shape, Heads(q), Heads(k), Heads(v), Heads(out), lse));
      if (done) return absl::OkStatus();
    }
    return Launched(kernels::AttentionForwardCuda<T>(shape, Heads(q), Heads(k), Heads(v),
                                                     Heads(out), lse, stream()),
                    "AttentionForward");
  }

  absl::Status AttentionBackward(const Resources& resources, const kernels::AttentionShape& shape,
                                 const kernels::AttentionSaved<T>& saved, Matrix<T> dq,
                                 Matrix<T> dk, Matrix<T> dv) const override {
    if constexpr (std::is_same_v<T, BFloat16>) {
      GEMINID_ASSIGN_OR_RETURN(
          const bool done,
          attention_.Backward(resources, shape, saved, Heads(dq), Heads(dk), Heads(dv)));
      if (done) return absl::OkStatus();
    }
    const size_t bytes = kernels::AttentionCudaWorkspaceBytes(shape);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
    return Launched(kernels::AttentionBackwardCuda<T>(shape, saved, Heads(dq), Heads(dk), Heads(dv),
                                                      scratch.data(), bytes, stream()),
                    "AttentionBackward");
  }

  // --- the model's ends ---
  absl::Status EmbeddingForward(const Resources& /*resources*/,
                                const kernels::EmbeddingShape& shape, const int32_t* tokens,
                                const T* table, const T* positions, size_t sequence,
                                T* x) const override {
    return Launched(
        kernels::EmbeddingForwardCuda<T>(shape, tokens, table, positions, sequence, x, stream()),
        "EmbeddingForward");
  }

  absl::Status EmbeddingBackward(const Resources& resources, const kernels::EmbeddingShape& shape,
                                 const int32_t* tokens, const T* gradient, T* table,
                                 bool accumulate) const override {
    const size_t bytes = kernels::EmbeddingCudaWorkspaceBytes(shape);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
    return Launched(kernels::EmbeddingBackwardCuda<T>(shape, tokens, gradient, table, accumulate,
                                                      scratch.data(), bytes, stream()),
                    "EmbeddingBackward");
  }

  absl::Status PositionBackward(const Resources& /*resources*/, const MicroBatchShape& shape,
                                Matrix<const T> gradient, T* positions,
                                bool accumulate) const override {
    return Launched(kernels::PositionEmbeddingBackwardCuda<T>(
                        shape.sequences, shape.sequence_length, gradient.cols, gradient.data,
                        positions, accumulate, stream()),
                    "PositionEmbeddingBackward");
  }

  absl::Status CrossEntropy(const Resources& resources, Matrix<float> logits,
                            const int32_t* targets, float gradient_scale, bool gradients,
                            kernels::CrossEntropyResult* result, float* token_loss) const override {
    const kernels::CrossEntropyShape shape = {
        .tokens = logits.rows, .vocabulary = logits.cols, .row_stride = logits.stride};
    const size_t bytes = kernels::CrossEntropyCudaWorkspaceBytes(shape);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
    return Launched(kernels::CrossEntropyCuda<float>(shape, logits.data, targets, gradient_scale,
                                                     gradients ? logits.data : nullptr, token_loss,
                                                     scratch.data(), bytes, result, stream()),
                    "CrossEntropy");
  }

  // --- dropout ---
  absl::Status Drop(const Resources& /*resources*/, const DropoutPlace& place, Matrix<const T> x,
                    T* y) const override {
    return Launched(
        kernels::DropoutCuda<T>(DropoutPatternOf(place), FirstElement(place, /*first_token=*/0),
                                x.size(), x.data, y, stream()),
        "Dropout");
  }

  absl::Status AddDropped(const Resources& /*resources*/, const DropoutPlace& place,
                          Matrix<const T> x, T* sum) const override {
    return Launched(
        kernels::AddDropoutCuda<T>(DropoutPatternOf(place), FirstElement(place, /*first_token=*/0),
                                   x.size(), x.data, sum, stream()),
        "AddDropout");
  }

  // --- copies from and to host memory ---
  absl::Status Upload(const Resources& /*resources*/, const void* from, size_t bytes,
                      void* to) const override {
    return queue_.Upload(from, bytes, to);
  }
  absl::Status Download(const Resources& /*resources*/, const void* from, size_t bytes,
                        void* to) const override {
    return queue_.Download(from, bytes, to);
  }
  absl::Status UploadRounded(const Resources& resources, const float* from, size_t count,
                             T* to) const override {
    const size_t bytes = count * sizeof(float);
    if constexpr (std::is_same_v<T, float>) {
      return queue_.Upload(from, bytes, to);
    } else {
      GEMINID_ASSIGN_OR_RETURN(auto exact, Scratch<float>::Allocate(resources, count));
      GEMINID_RETURN_IF_ERROR(queue_.Upload(from, bytes, exact.data()));
      return Round(resources, exact.data(), count, to);
    }
  }
  absl::Status DownloadWidened(const Resources& resources, const T* from, size_t count,
                               float* to) const override {
    const size_t bytes = count * sizeof(float);
    if constexpr (std::is_same_v<T, float>) {
      return queue_.Download(from, bytes, to);
    } else {
      GEMINID_ASSIGN_OR_RETURN(auto exact, Scratch<float>::Allocate(resources, count));
      GEMINID_RETURN_IF_ERROR(Widen(resources, from, count, exact.data()));
      return queue_.Download(exact.data(), bytes, to);
    }
  }

 private:
  template <typename P>
  absl::Status NormForwardOf(const Resources& resources, const NormShape& shape,
                             const NormForwardArgs<T, P>& args) const;
  template <typename P>
  absl::Status NormBackwardOf(const Resources& resources, const NormShape& shape,
                              const NormBackwardArgs<T, P>& args) const;

  kernels::CudaStream stream() const { return queue_.stream(); }

  // Uses the library if it is there and supports the shape; else the project's own kernel.
  template <typename Out>
  absl::Status Product(const Resources& resources, const MatmulShape& shape,
                       const kernels::MatmulOperands<T, Out>& operands) const {
    if (library_ != nullptr && !resources.rows_alone) {
      const kernels::MatmulPlan* plan = nullptr;
      const kernels::Status planned = library_->Plan(shape, operands, &plan);
      if (planned == kernels::Status::kOk) return ByLibrary(resources, shape, operands, *plan);
      if (planned != kernels::Status::kUnsupported) return kernels::FromKernel(planned, "Matmul");
    }
    return Launched(kernels::MatmulCuda<T, Out>(shape, operands.scale, operands.a, operands.b,
                                                operands.bias, operands.c, stream()),
                    "Matmul");
  }

  template <typename Out>
  absl::Status ByLibrary(const Resources& resources, const MatmulShape& shape,
                         const kernels::MatmulOperands<T, Out>& operands,
                         const kernels::MatmulPlan& plan) const {
    const size_t bytes = plan.workspace_bytes;
    Scratch<std::byte> scratch;
    if (bytes > 0) {
      GEMINID_ASSIGN_OR_RETURN(scratch, Scratch<std::byte>::Allocate(resources, bytes));
    }
    const kernels::Status status =
        library_->Run(shape, plan, operands, scratch.data(), bytes, stream());
    if (status != kernels::Status::kUnsupported) return kernels::FromKernel(status, "Matmul");
    return absl::UnavailableError(absl::StrCat(
        library_->Name(), " refused a product: ", library_->last_refusal(),
        "; to run without cuBLASLt set ", gpu::kCublasLtPathVariable, "=", gpu::kNoLibrary));
  }

  GpuQueue& queue_;
  kernels::MatmulLibrary* const library_;
  const GpuAttention attention_;
};

template <typename T>
template <typename P>
absl::Status GpuKernelsOf<T>::NormForwardOf(const Resources& /*resources*/, const NormShape& shape,
                                            const NormForwardArgs<T, P>& args) const {
  if (!shape.shifts) {
    return Launched(kernels::RmsNormForwardCuda<T, P>(
                        {.rows = shape.rows, .cols = shape.cols, .epsilon = shape.epsilon}, args.x,
                        args.gain, args.y, args.statistics, stream()),
                    "RmsNormForward");
  }
  return Launched(
      kernels::LayerNormForwardCuda<T, P>(
          {.rows = shape.rows, .cols = shape.cols, .epsilon = shape.epsilon}, args.x, args.gain,
          args.shift, args.y, args.statistics + shape.rows, args.statistics, stream()),
      "LayerNormForward");
}

template <typename T>
template <typename P>
absl::Status GpuKernelsOf<T>::NormBackwardOf(const Resources& resources, const NormShape& shape,
                                             const NormBackwardArgs<T, P>& args) const {
  if (!shape.shifts) {
    const kernels::RmsNormShape rms = {
        .rows = shape.rows, .cols = shape.cols, .epsilon = shape.epsilon};
    const size_t bytes = kernels::RmsNormCudaWorkspaceBytes(rms);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
    const kernels::RmsNormBackwardArgs<T, P> rms_args = {.dy = args.dy,
                                                         .x = args.x,
                                                         .gamma = args.gain,
                                                         .rstd = args.statistics,
                                                         .residual = args.residual,
                                                         .dx = args.dx,
                                                         .dgamma = args.dgain};
    return Launched(
        kernels::RmsNormBackwardCuda<T, P>(rms, rms_args, scratch.data(), bytes, stream()),
        "RmsNormBackward");
  }
  const kernels::LayerNormShape layer = {
      .rows = shape.rows, .cols = shape.cols, .epsilon = shape.epsilon};
  const size_t bytes = kernels::LayerNormCudaWorkspaceBytes(layer);
  GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
  const kernels::LayerNormBackwardArgs<T, P> layer_args = {.dy = args.dy,
                                                           .x = args.x,
                                                           .gamma = args.gain,
                                                           .mean = args.statistics + shape.rows,
                                                           .rstd = args.statistics,
                                                           .residual = args.residual,
                                                           .dx = args.dx,
                                                           .dgamma = args.dgain,
                                                           .dbeta = args.dshift};
  return Launched(
      kernels::LayerNormBackwardCuda<T, P>(layer, layer_args, scratch.data(), bytes, stream()),
      "LayerNormBackward");
}

}  // namespace

ModelKernels GpuKernels(GpuQueue* queue, const GpuLibraries& libraries) {
  return {std::make_unique<GpuKernelsOf<float>>(queue, libraries),
          std::make_unique<GpuKernelsOf<BFloat16>>(queue, libraries), forecast::kLogitAlignment,
          ModelKernels::Memory::kDevice};
}

}  // namespace geminid::trainer
