#include "training/nn/parallel/host_layer_math.h"

#include <cstring>

#include "kernels/model/activation/gelu.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/model/elementwise/transpose.h"
#include "kernels/numeric/cast/cast.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/parallel/tasks.h"

namespace geminid::collectives {
namespace {

using kernels::FromKernel;

// Rows of a gradient in bf16 that are widened at a time.
constexpr size_t kWideRows = 32;

absl::StatusOr<Memory::Block> Workspace(Memory& memory, size_t bytes) {
  return memory.Allocate("workspace of a sharded layer's kernel", bytes);
}

template <typename T>
class HostOperandMath final : public OperandMath<T> {
 public:
  HostOperandMath(kernels::ThreadPool* pool, Memory& memory) : pool_(pool), memory_(memory) {}

  absl::Status Multiply(const kernels::MatmulShape& shape, const T* a, const T* b,
                        float* c) override {
    constexpr auto kPath = kernels::MatmulPath::kAuto;
    size_t bytes = 0;
    GEMINID_RETURN_IF_ERROR(FromKernel(
        kernels::MatmulWorkspaceBytes<T, float>(shape, &bytes, kPath, threads()), "matmul"));
    GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, Workspace(memory_, bytes));
    return FromKernel(
        kernels::Matmul<T, float>(shape, a, b, nullptr, c, workspace.data(), bytes, kPath, pool_),
        "matmul");
  }

  absl::Status ColumnSum(size_t rows, size_t columns, const T* x, float* sum) override {
    const size_t bytes = kernels::ColumnSumWorkspaceBytes(columns);
    GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, Workspace(memory_, bytes));
    const auto add = [&](size_t count, const float* some, bool accumulate) {
      return FromKernel(
          kernels::ColumnSum(count, columns, some, sum, accumulate, workspace.data(), bytes),
          "column sum");
    };
    if constexpr (std::is_same_v<T, float>) {
      return add(rows, x, /*accumulate=*/false);
    } else {
      GEMINID_ASSIGN_OR_RETURN(const FloatBlock wide,
                               FloatBlock::Allocate(memory_, "rows of a gradient in fp32",
                                                    std::min(kWideRows, rows) * columns));
      for (size_t first = 0; first == 0 || first < rows; first += kWideRows) {
        const size_t count = std::min(kWideRows, rows - first);
        GEMINID_RETURN_IF_ERROR(Widen({x + first * columns, count * columns}, wide.data()));
        GEMINID_RETURN_IF_ERROR(add(count, wide.data(), /*accumulate=*/first > 0));
      }
      return absl::OkStatus();
    }
  }

  absl::Status Widen(std::span<const T> from, float* to) override {
    if constexpr (std::is_same_v<T, float>) {
      std::ranges::copy(from, to);
      return absl::OkStatus();
    } else {
      return FromKernel(kernels::CastToFloat(from.data(), from.size(), to), "cast");
    }
  }
  absl::Status Round(std::span<const float> from, T* to) override {
    if constexpr (std::is_same_v<T, float>) {
      std::ranges::copy(from, to);
      return absl::OkStatus();
    } else {
      return FromKernel(kernels::CastToBFloat16(from.data(), from.size(), to), "cast");
    }
  }
  absl::Status AddWide(std::span<const T> values, float* sum) override {
    for (size_t i = 0; i < values.size(); ++i) sum[i] += ToFloat(values[i]);
    return absl::OkStatus();
  }
  absl::Status AddRounded(std::span<const float> values, T* sum) override {
    for (size_t i = 0; i < values.size(); ++i) Store(ToFloat(sum[i]) + values[i], &sum[i]);
    return absl::OkStatus();
  }
  absl::Status WidenRows(size_t rows, size_t columns, const T* from, size_t stride,
                         float* to) override {
    for (size_t row = 0; row < rows; ++row) {
      GEMINID_RETURN_IF_ERROR(Widen({from + row * stride, columns}, to + row * columns));
    }
    return absl::OkStatus();
  }
  absl::Status RoundRows(size_t rows, size_t columns, const float* from, T* to,
                         size_t stride) override {
    for (size_t row = 0; row < rows; ++row) {
      GEMINID_RETURN_IF_ERROR(Round({from + row * columns, columns}, to + row * stride));
    }
    return absl::OkStatus();
  }
  absl::Status Transpose(size_t rows, size_t columns, const T* from, T* to) override {
    return FromKernel(kernels::TransposeMatrix(rows, columns, from, to), "transpose");
  }
  absl::Status TransposeRounded(size_t rows, size_t columns, const float* from, T* to) override {
    return FromKernel(kernels::TransposeMatrix(rows, columns, from, to), "transpose");
  }

  absl::Status GeluForward(const T* x, size_t count, T* y) override {
    return FromKernel(kernels::GeluForward(x, count, y), "GELU");
  }
  absl::Status GeluBackward(const T* dy, const T* x, size_t count, T* dx) override {
    return FromKernel(kernels::GeluBackward(dy, x, count, dx), "GELU");
  }
  absl::Status SwigluForward(const kernels::SwigluShape& shape, const T* gate, const T* up,
                             T* y) override {
    return FromKernel(kernels::SwigluForward(shape, gate, up, y), "SwiGLU");
  }
  absl::Status SwigluBackward(const kernels::SwigluShape& shape, const T* dy, const T* gate,
                              const T* up, T* dgate, T* dup) override {
    return FromKernel(kernels::SwigluBackward(shape, dy, gate, up, dgate, dup), "SwiGLU");
  }

  absl::Status Rotate(Rotation rotation, const kernels::RotaryShape& shape,
                      const RotaryTable& table, T* x) override {
    const auto rotate =
        rotation == Rotation::kForward ? kernels::RotaryForward<T> : kernels::RotaryBackward<T>;
    return FromKernel(rotate(shape, table.cos, table.sin, x), "rotary");
  }

  absl::Status AttentionForward(const kernels::AttentionShape& shape, kernels::HeadsView<const T> q,
                                kernels::HeadsView<const T> k, kernels::HeadsView<const T> v,
                                kernels::HeadsView<T> out, float* lse) override {
    GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, WorkspaceOf(shape));
    return FromKernel(kernels::AttentionForward<T>(shape, q, k, v, out, lse, workspace.data(),
                                                   workspace.bytes(), pool_),
                      "attention");
  }
  absl::Status AttentionBackward(const kernels::AttentionShape& shape,
                                 const kernels::AttentionSaved<T>& saved, kernels::HeadsView<T> dq,
                                 kernels::HeadsView<T> dk, kernels::HeadsView<T> dv) override {
    GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace, WorkspaceOf(shape));
    return FromKernel(kernels::AttentionBackward<T>(shape, saved, dq, dk, dv, workspace.data(),
                                                    workspace.bytes(), pool_),
                      "attention backward");
  }

 private:
  static float ToFloat(T value) {
    if constexpr (std::is_same_v<T, float>) {
      return value;
    } else {
      return value.ToFloat();
    }
  }
  static void Store(float value, T* to) {
    if constexpr (std::is_same_v<T, float>) {
      *to = value;
    } else {
      *to = T::FromFloat(value);
    }
  }

  size_t threads() const { return kernels::ThreadsOf(pool_); }
  absl::StatusOr<Memory::Block> WorkspaceOf(const kernels::AttentionShape& shape) {
    return Workspace(memory_, kernels::AttentionWorkspaceBytes(shape, threads()));
  }

  kernels::ThreadPool* const pool_;
  Memory& memory_;
};

class HostLayerMath final : public LayerMath {
 public:
  HostLayerMath(kernels::ThreadPool* pool, Memory& memory)
      : memory_(memory), of_float_(pool, memory), of_bfloat16_(pool, memory) {}

  bool on_host() const override { return true; }
  absl::Status Copy(const void* from, size_t bytes, void* to) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status Download(const void* from, size_t bytes, void* to) override {
    return Copy(from, bytes, to);
  }
  absl::Status Upload(const void* from, size_t bytes, void* to) override {
    return Copy(from, bytes, to);
  }
  absl::Status AddBias(size_t rows, size_t columns, const float* bias, float* x) override {
    return FromKernel(kernels::BiasAdd(rows, columns, bias, x), "bias");
  }

  absl::Status MergeAttention(const kernels::MergeShape& shape, const float* other,
                              const float* other_lse, float* out, float* lse) override {
    return FromKernel(kernels::MergeAttention(shape, other, other_lse, out, lse),
                      "merge of attention");
  }

  absl::Status NormSum(const kernels::NormPart& part, const float* x, float* sum) override {
    return FromKernel(kernels::NormPartSum(part, x, sum), "norm");
  }
  absl::Status NormSquares(const kernels::NormPart& part, const float* x, const float* mean,
                           float* squares) override {
    return FromKernel(kernels::NormPartSquares(part, x, mean, squares), "norm");
  }
  absl::Status NormMeans(size_t columns, std::span<float> sums) override {
    return FromKernel(kernels::NormPartMeans(sums.size(), columns, sums.data()), "norm");
  }
  absl::Status NormInverseRoots(float epsilon, std::span<float> values) override {
    return FromKernel(kernels::NormPartInverseRoots(values.size(), epsilon, values.data()), "norm");
  }
  absl::Status NormForward(const kernels::NormPart& part, const float* x, const NormValues& values,
                           float* y) override {
    return FromKernel(
        kernels::NormPartForward(part, x, values.mean, values.rstd, values.gamma, values.beta, y),
        "norm");
  }
  absl::Status NormGradientSums(const kernels::NormPart& part,
                                const kernels::NormPartBackwardArgs& args, float* sum_gx,
                                float* sum_g) override {
    return FromKernel(kernels::NormPartGradientSums(part, args, sum_gx, sum_g), "norm's gradient");
  }
  absl::Status NormBackward(const kernels::NormPart& part,
                            const kernels::NormPartBackwardArgs& args, const float* mean_gx,
                            const float* mean_g,
                            const kernels::NormPartGradients& gradients) override {
    GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace,
                             Workspace(memory_, kernels::NormPartWorkspaceBytes(part)));
    return FromKernel(kernels::NormPartBackward(part, args, mean_gx, mean_g, gradients,
                                                workspace.data(), workspace.bytes()),
                      "norm's gradient");
  }

  absl::Status EmbeddingForward(const kernels::EmbeddingShape& shape, const int32_t* ids,
                                const float* table, float* y) override {
    return FromKernel(kernels::EmbeddingForward<float>(shape, ids, table, nullptr, 0, y),
                      "embedding");
  }
  absl::Status EmbeddingBackward(const kernels::EmbeddingShape& shape, const int32_t* ids,
                                 const float* dy, float* dtable) override {
    GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace,
                             Workspace(memory_, kernels::EmbeddingWorkspaceBytes(shape)));
    return FromKernel(kernels::EmbeddingBackward(shape, ids, dy, dtable, /*accumulate=*/false,
                                                 workspace.data(), workspace.bytes()),
                      "embedding backward");
  }

  absl::Status LogitsMax(const kernels::CrossEntropyPart& part, const float* logits,
                         float* max) override {
    return FromKernel(kernels::CrossEntropyPartMax(part, logits, max), "cross-entropy");
  }
  absl::Status LogitsSums(const kernels::CrossEntropyPart& part, const float* logits,
                          const int32_t* targets, const float* max, float* sums,
                          float* at_target) override {
    return FromKernel(kernels::CrossEntropyPartSums(part, logits, targets, max, sums, at_target),
                      "cross-entropy");
  }
  absl::Status LogitsGradient(const kernels::CrossEntropyPart& part, const float* logits,
                              const int32_t* targets, const float* max, const float* sums,
                              float grad_scale, float* dlogits) override {
    return FromKernel(
        kernels::CrossEntropyPartGradient(part, logits, targets, max, sums, grad_scale, dlogits),
        "cross-entropy gradient");
  }

 private:
  OperandMath<float>& OfFloat() override { return of_float_; }
  OperandMath<kernels::BFloat16>& OfBFloat16() override { return of_bfloat16_; }

  Memory& memory_;
  HostOperandMath<float> of_float_;
  HostOperandMath<kernels::BFloat16> of_bfloat16_;
};

}  // namespace

std::unique_ptr<LayerMath> MakeHostLayerMath(kernels::ThreadPool* pool, Memory& memory) {
  return std::make_unique<HostLayerMath>(pool, memory);
}

template <typename T>
size_t HostColumnSumBytes(size_t rows, size_t columns) {
  const size_t wide =
      std::is_same_v<T, float> ? 0 : std::min(kWideRows, rows) * columns * sizeof(float);
  return kernels::ColumnSumWorkspaceBytes(columns) + wide;
}
template size_t HostColumnSumBytes<float>(size_t, size_t);
template size_t HostColumnSumBytes<kernels::BFloat16>(size_t, size_t);

}  // namespace geminid::collectives
