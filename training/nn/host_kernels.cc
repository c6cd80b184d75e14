// The host's kernels. They run on the threads that each call gets.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/status_macros.h"
#include "kernels/model/activation/gelu.h"
#include "kernels/model/activation/gelu_erf.h"
#include "kernels/model/activation/relu.h"
#include "kernels/model/activation/swiglu.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/model/matmul/rows.h"
#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/model/normalisation/rms_norm.h"
#include "kernels/numeric/cast/cast.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/parallel/tasks.h"
#include "training/nn/model_kernels.h"

namespace geminid::trainer {
namespace {

using kernels::BFloat16;
using kernels::FromKernel;
using kernels::MatmulShape;
using kernels::Transpose;

// Calls work(first, count) -> absl::Status on the threads, for groups of `rows` rows of `cols`
// elements. Every split of the work must give the same bits.
template <typename Work>
absl::Status ForRows(const Resources& resources, size_t rows, size_t cols, const Work& work) {
  constexpr size_t kPieceElements = 16384;  // some microseconds of work
  const size_t piece = std::max<size_t>(1, kPieceElements / std::max<size_t>(1, cols));
  const size_t pieces = kernels::GranuleCount(rows, piece);
  if (resources.threads == nullptr || pieces <= 1) return work(size_t{0}, rows);
  std::vector<absl::Status> failed(resources.threads->threads());
  const kernels::Status status =
      kernels::RunTasks(resources.threads, pieces, [&](size_t index, size_t thread) {
        const kernels::Granule rows_of = kernels::GranuleAt(index, rows, piece);
        failed[thread] = work(rows_of.begin, rows_of.end - rows_of.begin);
        return failed[thread].ok() ? kernels::Status::kOk : kernels::Status::kUnsupported;
      });
  if (status == kernels::Status::kOk) return absl::OkStatus();
  for (absl::Status& one : failed) {
    if (!one.ok()) return std::move(one);
  }
  return absl::InternalError("a thread's work failed");
}

template <typename In, typename Out>
absl::Status MultiplyOn(const Resources& resources, const MatmulShape& shape, const In* a,
                        const In* b, const Out* bias, Out* c) {
  if (resources.rows_alone && shape.transpose_a == Transpose::kNo) {
    return FromKernel(kernels::MatmulByRows<In, Out>(shape, a, b, bias, c, resources.threads),
                      "MatmulByRows");
  }
  size_t bytes = 0;
  GEMINID_RETURN_IF_ERROR(
      FromKernel(kernels::MatmulWorkspaceBytes<In, Out>(shape, &bytes, kernels::MatmulPath::kAuto,
                                                        kernels::ThreadsOf(resources.threads)),
                 "MatmulWorkspaceBytes"));
  Scratch<std::byte> scratch;
  if (bytes > 0) {
    GEMINID_ASSIGN_OR_RETURN(scratch, Scratch<std::byte>::Allocate(resources, bytes));
  }
  return FromKernel(kernels::Matmul<In, Out>(shape, a, b, bias, c, scratch.data(), bytes,
                                             kernels::MatmulPath::kAuto, resources.threads),
                    "Matmul");
}

kernels::Status RoundTo(const float* in, size_t count, BFloat16* out) {
  return kernels::CastToBFloat16(in, count, out);
}
kernels::Status RoundTo(const float* in, size_t count, float* out) {
  std::copy_n(in, count, out);
  return kernels::Status::kOk;
}
kernels::Status WidenTo(const BFloat16* in, size_t count, float* out) {
  return kernels::CastToFloat(in, count, out);
}
kernels::Status WidenTo(const float* in, size_t count, float* out) {
  return RoundTo(in, count, out);
}

template <typename T>
kernels::HeadsView<T> Heads(Matrix<T> matrix) {
  return {.data = matrix.data, .token_stride = matrix.stride};
}

template <typename T>
class HostKernelsOf final : public KernelsOf<T> {
 public:
  // --- products ---
  absl::Status Multiply(const Resources& resources, const MatmulShape& shape, const T* a,
                        const T* b, const T* bias, T* c) const override {
    return MultiplyOn<T, T>(resources, shape, a, b, bias, c);
  }

  absl::Status MultiplyScaled(const Resources& resources, const MatmulShape& shape, float scale,
                              const T* a, const T* b, T* c) const override {
    const size_t count = shape.m * shape.n;
    GEMINID_ASSIGN_OR_RETURN(auto exact, Scratch<float>::Allocate(resources, count));
    GEMINID_RETURN_IF_ERROR((MultiplyOn<T, float>(resources, shape, a, b, nullptr, exact.data())));
    for (size_t i = 0; i < count; ++i) exact.data()[i] *= scale;
    return Round(resources, exact.data(), count, c);
  }

  absl::Status MultiplyWide(const Resources& resources, const MatmulShape& shape, const T* a,
                            const T* b, float* c) const override {
    return MultiplyOn<T, float>(resources, shape, a, b, nullptr, c);
  }

  absl::Status ColumnSum(const Resources& resources, Matrix<const T> x, T* sum) const override {
    const size_t bytes = kernels::ColumnSumWorkspaceBytes(x.cols);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
    return FromKernel(kernels::ColumnSum<T>(x.rows, x.cols, x.data, sum, /*accumulate=*/false,
                                            scratch.data(), bytes),
                      "ColumnSum");
  }

  // --- moves ---
  absl::Status Copy(const Resources& resources, Matrix<const T> from, Matrix<T> to) const override {
    return ForRows(resources, from.rows, from.cols, [&](size_t first, size_t some) {
      for (size_t r = first; r < first + some; ++r) {
        std::copy_n(from.data + r * from.stride, from.cols, to.data + r * to.stride);
      }
      return absl::OkStatus();
    });
  }

  absl::Status Zero(const Resources& /*resources*/, void* data, size_t bytes) const override {
    std::memset(data, 0, bytes);
    return absl::OkStatus();
  }

  absl::Status Round(const Resources& resources, const float* in, size_t count,
                     T* out) const override {
    return ForRows(resources, count, 1, [&](size_t first, size_t some) {
      return FromKernel(RoundTo(in + first, some, out + first), "CastToBFloat16");
    });
  }

  absl::Status Widen(const Resources& resources, const T* in, size_t count,
                     float* out) const override {
    return ForRows(resources, count, 1, [&](size_t first, size_t some) {
      return FromKernel(WidenTo(in + first, some, out + first), "CastToFloat");
    });
  }

  absl::Status AddBias(const Resources& resources, const T* bias, Matrix<float> x) const override {
    GEMINID_ASSIGN_OR_RETURN(auto wide, Scratch<float>::Allocate(resources, x.cols));
    GEMINID_RETURN_IF_ERROR(Widen(resources, bias, x.cols, wide.data()));
    return FromKernel(kernels::BiasAdd<float>(x.rows, x.cols, wide.data(), x.data), "BiasAdd");
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
  absl::Status Activate(const Resources& resources, Activation activation, Matrix<const T> input,
                        const T* up, T* out) const override;
  absl::Status ActivateBackward(const Resources& resources, Activation activation,
                                Matrix<const T> dy, T* input, T* up) const override;

  // --- attention ---
  absl::Status Rotate(const Resources& resources, PassDirection turn,
                      const kernels::RotaryShape& shape, const RotaryTables& tables,
                      T* x) const override;
  absl::Status AttentionForward(const Resources& resources, const kernels::AttentionShape& shape,
                                Matrix<const T> q, Matrix<const T> k, Matrix<const T> v,
                                Matrix<T> out, float* lse) const override;
  absl::Status AttentionBackward(const Resources& resources, const kernels::AttentionShape& shape,
                                 const kernels::AttentionSaved<T>& saved, Matrix<T> dq,
                                 Matrix<T> dk, Matrix<T> dv) const override;

  // --- the model's ends ---
  absl::Status EmbeddingForward(const Resources& /*resources*/,
                                const kernels::EmbeddingShape& shape, const int32_t* tokens,
                                const T* table, const T* positions, size_t sequence,
                                T* x) const override {
    return FromKernel(kernels::EmbeddingForward<T>(shape, tokens, table, positions, sequence, x),
                      "EmbeddingForward");
  }

  absl::Status EmbeddingBackward(const Resources& resources, const kernels::EmbeddingShape& shape,
                                 const int32_t* tokens, const T* gradient, T* table,
                                 bool accumulate) const override {
    const size_t bytes = kernels::EmbeddingWorkspaceBytes(shape);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
    return FromKernel(kernels::EmbeddingBackward<T>(shape, tokens, gradient, table, accumulate,
                                                    scratch.data(), bytes),
                      "EmbeddingBackward");
  }

  absl::Status PositionBackward(const Resources& /*resources*/, const MicroBatchShape& shape,
                                Matrix<const T> gradient, T* positions,
                                bool accumulate) const override {
    return FromKernel(
        kernels::PositionEmbeddingBackward<T>(shape.sequences, shape.sequence_length, gradient.cols,
                                              gradient.data, positions, accumulate),
        "PositionEmbeddingBackward");
  }

  absl::Status CrossEntropy(const Resources& resources, Matrix<float> logits,
                            const int32_t* targets, float gradient_scale, bool gradients,
                            kernels::CrossEntropyResult* result, float* token_loss) const override;

  // --- dropout ---
  absl::Status Drop(const Resources& resources, const DropoutPlace& place, Matrix<const T> x,
                    T* y) const override {
    return ForRows(resources, x.rows, x.cols, [&](size_t first, size_t count) {
      ApplyDropout(place, first, count, x.data + first * x.cols, y + first * x.cols);
      return absl::OkStatus();
    });
  }

  absl::Status AddDropped(const Resources& resources, const DropoutPlace& place, Matrix<const T> x,
                          T* sum) const override {
    return ForRows(resources, x.rows, x.cols, [&](size_t first, size_t count) {
      AddDropout(place, first, count, x.data + first * x.cols, sum + first * x.cols);
      return absl::OkStatus();
    });
  }

  // --- copies from and to host memory ---
  absl::Status Upload(const Resources& /*resources*/, const void* from, size_t bytes,
                      void* to) const override {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status Download(const Resources& /*resources*/, const void* from, size_t bytes,
                        void* to) const override {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status UploadRounded(const Resources& resources, const float* from, size_t count,
                             T* to) const override {
    return Round(resources, from, count, to);
  }
  absl::Status DownloadWidened(const Resources& resources, const T* from, size_t count,
                               float* to) const override {
    return Widen(resources, from, count, to);
  }

 private:
  template <typename P>
  absl::Status NormForwardOf(const Resources& resources, const NormShape& shape,
                             const NormForwardArgs<T, P>& args) const;
  template <typename P>
  absl::Status NormBackwardOf(const Resources& resources, const NormShape& shape,
                              const NormBackwardArgs<T, P>& args) const;
};

template <typename T>
template <typename P>
absl::Status HostKernelsOf<T>::NormForwardOf(const Resources& resources, const NormShape& shape,
                                             const NormForwardArgs<T, P>& args) const {
  return ForRows(resources, shape.rows, shape.cols, [&](size_t first, size_t count) {
    const size_t at = first * shape.cols;
    float* const rstd = args.statistics + first;
    if (!shape.shifts) {
      return FromKernel(kernels::RmsNormForward<T, P>(
                            {.rows = count, .cols = shape.cols, .epsilon = shape.epsilon},
                            args.x + at, args.gain, args.y + at, rstd),
                        "RmsNormForward");
    }
    return FromKernel(kernels::LayerNormForward<T, P>(
                          {.rows = count, .cols = shape.cols, .epsilon = shape.epsilon},
                          args.x + at, args.gain, args.shift, args.y + at, rstd + shape.rows, rstd),
                      "LayerNormForward");
  });
}

template <typename T>
template <typename P>
absl::Status HostKernelsOf<T>::NormBackwardOf(const Resources& resources, const NormShape& shape,
                                              const NormBackwardArgs<T, P>& args) const {
  if (!shape.shifts) {
    const kernels::RmsNormShape rms = {
        .rows = shape.rows, .cols = shape.cols, .epsilon = shape.epsilon};
    const size_t bytes = kernels::RmsNormWorkspaceBytes(rms);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
    const kernels::RmsNormBackwardArgs<T, P> rms_args = {.dy = args.dy,
                                                         .x = args.x,
                                                         .gamma = args.gain,
                                                         .rstd = args.statistics,
                                                         .residual = args.residual,
                                                         .dx = args.dx,
                                                         .dgamma = args.dgain};
    return FromKernel(kernels::RmsNormBackward<T, P>(rms, rms_args, scratch.data(), bytes),
                      "RmsNormBackward");
  }
  const kernels::LayerNormShape layer = {
      .rows = shape.rows, .cols = shape.cols, .epsilon = shape.epsilon};
  const size_t bytes = kernels::LayerNormWorkspaceBytes(layer);
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
  return FromKernel(kernels::LayerNormBackward<T, P>(layer, layer_args, scratch.data(), bytes),
                    "LayerNormBackward");
}

template <typename T>
absl::Status HostKernelsOf<T>::Activate(const Resources& resources, Activation activation,
                                        Matrix<const T> input, const T* up, T* out) const {
  const size_t cols = input.cols;
  return ForRows(resources, input.rows, cols, [&](size_t first, size_t count) {
    const size_t at = first * cols;
    if (up == nullptr && activation == Activation::kRelu) {
      return FromKernel(kernels::ReluForward<T>(input.data + at, count * cols, out + at),
                        "ReluForward");
    }
    if (up == nullptr && activation == Activation::kGeluErf) {
      return FromKernel(kernels::GeluErfForward<T>(input.data + at, count * cols, out + at),
                        "GeluErfForward");
    }
    if (up == nullptr) {
      return FromKernel(kernels::GeluForward<T>(input.data + at, count * cols, out + at),
                        "GeluForward");
    }
    return FromKernel(
        kernels::SwigluForward<T>({.rows = count, .cols = cols, .gate_up_stride = cols},
                                  input.data + at, up + at, out + at),
        "SwigluForward");
  });
}

template <typename T>
absl::Status HostKernelsOf<T>::ActivateBackward(const Resources& resources, Activation activation,
                                                Matrix<const T> dy, T* input, T* up) const {
  const size_t cols = dy.cols;
  return ForRows(resources, dy.rows, cols, [&](size_t first, size_t count) {
    const size_t at = first * cols;
    if (up == nullptr && activation == Activation::kRelu) {
      return FromKernel(
          kernels::ReluBackward<T>(dy.data + at, input + at, count * cols, input + at),
          "ReluBackward");
    }
    if (up == nullptr && activation == Activation::kGeluErf) {
      return FromKernel(
          kernels::GeluErfBackward<T>(dy.data + at, input + at, count * cols, input + at),
          "GeluErfBackward");
    }
    if (up == nullptr) {
      return FromKernel(
          kernels::GeluBackward<T>(dy.data + at, input + at, count * cols, input + at),
          "GeluBackward");
    }
    return FromKernel(
        kernels::SwigluBackward<T>({.rows = count, .cols = cols, .gate_up_stride = cols},
                                   dy.data + at, input + at, up + at, input + at, up + at),
        "SwigluBackward");
  });
}

template <typename T>
absl::Status HostKernelsOf<T>::Rotate(const Resources& resources, PassDirection turn,
                                      const kernels::RotaryShape& shape, const RotaryTables& tables,
                                      T* x) const {
  const auto rotate =
      turn == PassDirection::kForward ? kernels::RotaryForward<T> : kernels::RotaryBackward<T>;
  const size_t elements = shape.sequence * shape.token_stride;  // of one sequence
  return ForRows(resources, shape.batch, elements, [&](size_t first, size_t count) {
    kernels::RotaryShape part = shape;
    part.batch = count;
    return FromKernel(rotate(part, tables.cos, tables.sin, x + first * elements), "Rotary");
  });
}

template <typename T>
absl::Status HostKernelsOf<T>::AttentionForward(const Resources& resources,
                                                const kernels::AttentionShape& shape,
                                                Matrix<const T> q, Matrix<const T> k,
                                                Matrix<const T> v, Matrix<T> out,
                                                float* lse) const {
  const size_t bytes =
      kernels::AttentionWorkspaceBytes(shape, kernels::ThreadsOf(resources.threads));
  GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
  return FromKernel(kernels::AttentionForward<T>(shape, Heads(q), Heads(k), Heads(v), Heads(out),
                                                 lse, scratch.data(), bytes, resources.threads),
                    "AttentionForward");
}

template <typename T>
absl::Status HostKernelsOf<T>::AttentionBackward(const Resources& resources,
                                                 const kernels::AttentionShape& shape,
                                                 const kernels::AttentionSaved<T>& saved,
                                                 Matrix<T> dq, Matrix<T> dk, Matrix<T> dv) const {
  const size_t bytes =
      kernels::AttentionWorkspaceBytes(shape, kernels::ThreadsOf(resources.threads));
  GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources, bytes));
  return FromKernel(kernels::AttentionBackward<T>(shape, saved, Heads(dq), Heads(dk), Heads(dv),
                                                  scratch.data(), bytes, resources.threads),
                    "AttentionBackward");
}

template <typename T>
absl::Status HostKernelsOf<T>::CrossEntropy(const Resources& resources, Matrix<float> logits,
                                            const int32_t* targets, float gradient_scale,
                                            bool gradients, kernels::CrossEntropyResult* result,
                                            float* token_loss) const {
  // Sums rows in groups whose size does not depend on the number of threads.
  constexpr size_t kRows = 16;
  std::vector<kernels::CrossEntropyResult> parts(kernels::GranuleCount(logits.rows, kRows));
  GEMINID_RETURN_IF_ERROR(FromKernel(
      kernels::RunTasks(resources.threads, parts.size(),
                        [&](size_t index, size_t) {
                          const auto piece = kernels::GranuleAt(index, logits.rows, kRows);
                          float* const rows = logits.data + piece.begin * logits.stride;
                          return kernels::CrossEntropy<float>(
                              {.tokens = piece.end - piece.begin,
                               .vocabulary = logits.cols,
                               .row_stride = logits.stride},
                              rows, targets + piece.begin, gradient_scale,
                              gradients ? rows : nullptr,
                              token_loss == nullptr ? nullptr : token_loss + piece.begin,
                              &parts[index]);
                        }),
      "CrossEntropy"));
  *result = {};
  for (const kernels::CrossEntropyResult& part : parts) {
    result->loss_sum += part.loss_sum;
    result->counted += part.counted;
  }
  return absl::OkStatus();
}

}  // namespace

ModelKernels MakeHostKernels(size_t row_alignment) {
  return {std::make_unique<HostKernelsOf<float>>(), std::make_unique<HostKernelsOf<BFloat16>>(),
          row_alignment, ModelKernels::Memory::kHost};
}

const ModelKernels& HostKernels() {
  static const auto* const all = new ModelKernels(MakeHostKernels(/*row_alignment=*/1));
  return *all;
}

}  // namespace geminid::trainer
