#include "training/nn/gpu_layer_math.h"

#include <optional>
#include <type_traits>

#include "base/status_macros.h"
#include "kernels/model/activation/gelu_cuda.h"
#include "kernels/model/activation/swiglu_cuda.h"
#include "kernels/model/attention/merge_attention_cuda.h"
#include "kernels/model/cross_entropy/cross_entropy_part_cuda.h"
#include "kernels/model/elementwise/bias_cuda.h"
#include "kernels/model/elementwise/transpose_cuda.h"
#include "kernels/model/normalisation/norm_part_cuda.h"
#include "kernels/numeric/accumulate/accumulate_cuda.h"
#include "training/nn/gpu_launch.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {
namespace {

using collectives::OperandMath;
using collectives::Rotation;
using kernels::BFloat16;
using kernels::HeadsView;

// The place of the work: it changes with each micro-batch.
struct Place {
  const ModelKernels& math;
  GpuQueue& queue;
  std::optional<Resources> resources;

  kernels::CudaStream stream() const { return queue.stream(); }
};

template <typename T>
Matrix<T> AsMatrix(const HeadsView<T>& view, size_t rows, size_t columns) {
  return {view.data, rows, columns, view.token_stride};
}

template <typename T>
class GpuOperandMath final : public OperandMath<T> {
 public:
  explicit GpuOperandMath(const Place& place) : place_(place) {}

  absl::Status Multiply(const kernels::MatmulShape& shape, const T* a, const T* b,
                        float* c) override {
    return table().MultiplyWide(resources(), shape, a, b, c);
  }
  absl::Status ColumnSum(size_t rows, size_t columns, const T* x, float* sum) override {
    const size_t bytes = kernels::ColumnSumCudaWorkspaceBytes(rows, columns);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(resources(), bytes));
    return Launched(kernels::ColumnSumWideCuda<T>(rows, columns, x, sum, scratch.data(), bytes,
                                                  place_.stream()),
                    "ColumnSum");
  }

  absl::Status Widen(std::span<const T> from, float* to) override {
    return table().Widen(resources(), from.data(), from.size(), to);
  }
  absl::Status Round(std::span<const float> from, T* to) override {
    return table().Round(resources(), from.data(), from.size(), to);
  }
  absl::Status AddWide(std::span<const T> values, float* sum) override {
    if constexpr (std::is_same_v<T, float>) {
      return Add(values.data(), values.size(), sum);
    } else {
      GEMINID_ASSIGN_OR_RETURN(auto wide, Scratch<float>::Allocate(resources(), values.size()));
      GEMINID_RETURN_IF_ERROR(Widen(values, wide.data()));
      return Add(wide.data(), values.size(), sum);
    }
  }
  absl::Status AddRounded(std::span<const float> values, T* sum) override {
    const size_t count = values.size();
    if constexpr (std::is_same_v<T, float>) {
      return Add(values.data(), count, sum);
    } else {
      GEMINID_ASSIGN_OR_RETURN(auto wide, Scratch<float>::Allocate(resources(), count));
      GEMINID_RETURN_IF_ERROR(Widen({sum, count}, wide.data()));
      GEMINID_RETURN_IF_ERROR(Add(values.data(), count, wide.data()));
      return Round({wide.data(), count}, sum);
    }
  }
  absl::Status WidenRows(size_t rows, size_t columns, const T* from, size_t stride,
                         float* to) override {
    const Matrix<const T> some(from, rows, columns, stride);
    if constexpr (std::is_same_v<T, float>) {
      return table().Copy(resources(), some, Matrix<T>(to, rows, columns));
    } else {
      GEMINID_ASSIGN_OR_RETURN(auto dense, Scratch<T>::Allocate(resources(), some.size()));
      GEMINID_RETURN_IF_ERROR(
          table().Copy(resources(), some, Matrix<T>(dense.data(), rows, columns)));
      return table().Widen(resources(), dense.data(), some.size(), to);
    }
  }
  absl::Status RoundRows(size_t rows, size_t columns, const float* from, T* to,
                         size_t stride) override {
    const Matrix<T> some(to, rows, columns, stride);
    if constexpr (std::is_same_v<T, float>) {
      return table().Copy(resources(), Matrix<const T>(from, rows, columns), some);
    } else {
      GEMINID_ASSIGN_OR_RETURN(auto dense, Scratch<T>::Allocate(resources(), some.size()));
      GEMINID_RETURN_IF_ERROR(table().Round(resources(), from, some.size(), dense.data()));
      return table().Copy(resources(), Matrix<const T>(dense.data(), rows, columns), some);
    }
  }
  absl::Status Transpose(size_t rows, size_t columns, const T* from, T* to) override {
    return Launched(kernels::TransposeMatrixCuda(rows, columns, from, to, place_.stream()),
                    "TransposeMatrix");
  }
  absl::Status TransposeRounded(size_t rows, size_t columns, const float* from, T* to) override {
    return Launched(kernels::TransposeMatrixCuda(rows, columns, from, to, place_.stream()),
                    "TransposeMatrix");
  }

  absl::Status GeluForward(const T* x, size_t count, T* y) override {
    return Launched(kernels::GeluForwardCuda<T>(x, count, y, place_.stream()), "GeluForward");
  }
  absl::Status GeluBackward(const T* dy, const T* x, size_t count, T* dx) override {
    return Launched(kernels::GeluBackwardCuda<T>(dy, x, count, dx, place_.stream()),
                    "GeluBackward");
  }
  absl::Status SwigluForward(const kernels::SwigluShape& shape, const T* gate, const T* up,
                             T* y) override {
    return Launched(kernels::SwigluForwardCuda<T>(shape, gate, up, y, place_.stream()),
                    "SwigluForward");
  }
  absl::Status SwigluBackward(const kernels::SwigluShape& shape, const T* dy, const T* gate,
                              const T* up, T* dgate, T* dup) override {
    return Launched(
        kernels::SwigluBackwardCuda<T>(shape, dy, gate, up, dgate, dup, place_.stream()),
        "SwigluBackward");
  }

  absl::Status Rotate(Rotation rotation, const kernels::RotaryShape& shape,
                      const collectives::RotaryTable& angles, T* x) override {
    return table().Rotate(
        resources(),
        rotation == Rotation::kForward ? PassDirection::kForward : PassDirection::kBackward, shape,
        {.cos = angles.cos, .sin = angles.sin}, x);
  }
  absl::Status AttentionForward(const kernels::AttentionShape& shape, HeadsView<const T> q,
                                HeadsView<const T> k, HeadsView<const T> v, HeadsView<T> out,
                                float* lse) override {
    const size_t rows = shape.batch * shape.sequence;
    const size_t queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
    return table().AttentionForward(resources(), shape, AsMatrix(q, rows, queries),
                                    AsMatrix(k, rows, keys), AsMatrix(v, rows, keys),
                                    AsMatrix(out, rows, queries), lse);
  }
  absl::Status AttentionBackward(const kernels::AttentionShape& shape,
                                 const kernels::AttentionSaved<T>& saved, HeadsView<T> dq,
                                 HeadsView<T> dk, HeadsView<T> dv) override {
    const size_t rows = shape.batch * shape.sequence;
    const size_t queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
    return table().AttentionBackward(resources(), shape, saved, AsMatrix(dq, rows, queries),
                                     AsMatrix(dk, rows, keys), AsMatrix(dv, rows, keys));
  }

 private:
  const KernelsOf<T>& table() const { return place_.math.Of<T>(); }
  const Resources& resources() const { return *place_.resources; }
  absl::Status Add(const float* values, size_t count, float* sum) const {
    return Launched(kernels::AddCuda(values, count, sum, place_.stream()), "Add");
  }

  const Place& place_;
};

class GpuMath final : public GpuLayerMath {
 public:
  GpuMath(const ModelKernels& math, GpuQueue& queue) : place_{math, queue, std::nullopt} {}

  void Bind(zero::Workspace& workspace) override {
    place_.resources.emplace(Resources{workspace, place_.math});
  }

  bool on_host() const override { return false; }
  absl::Status Copy(const void* from, size_t bytes, void* to) override {
    return place_.queue.Copy(from, bytes, to);
  }
  absl::Status Download(const void* from, size_t bytes, void* to) override {
    return place_.queue.Download(from, bytes, to);
  }
  absl::Status Upload(const void* from, size_t bytes, void* to) override {
    return place_.queue.Upload(from, bytes, to);
  }
  absl::Status AddBias(size_t rows, size_t columns, const float* bias, float* x) override {
    return Launched(kernels::BiasAddCuda<float>(rows, columns, bias, x, place_.stream()),
                    "BiasAdd");
  }

  absl::Status MergeAttention(const kernels::MergeShape& shape, const float* other,
                              const float* other_lse, float* out, float* lse) override {
    return Launched(kernels::MergeAttentionCuda(shape, other, other_lse, out, lse, place_.stream()),
                    "MergeAttention");
  }

  absl::Status NormSum(const kernels::NormPart& part, const float* x, float* sum) override {
    return Launched(kernels::NormPartSumCuda(part, x, sum, place_.stream()), "NormPartSum");
  }
  absl::Status NormSquares(const kernels::NormPart& part, const float* x, const float* mean,
                           float* squares) override {
    return Launched(kernels::NormPartSquaresCuda(part, x, mean, squares, place_.stream()),
                    "NormPartSquares");
  }
  absl::Status NormMeans(size_t columns, std::span<float> sums) override {
    return Launched(kernels::NormPartMeansCuda(sums.size(), columns, sums.data(), place_.stream()),
                    "NormPartMeans");
  }
  absl::Status NormInverseRoots(float epsilon, std::span<float> values) override {
    return Launched(
        kernels::NormPartInverseRootsCuda(values.size(), epsilon, values.data(), place_.stream()),
        "NormPartInverseRoots");
  }
  absl::Status NormForward(const kernels::NormPart& part, const float* x, const NormValues& values,
                           float* y) override {
    return Launched(kernels::NormPartForwardCuda(part, x, values.mean, values.rstd, values.gamma,
                                                 values.beta, y, place_.stream()),
                    "NormPartForward");
  }
  absl::Status NormGradientSums(const kernels::NormPart& part,
                                const kernels::NormPartBackwardArgs& args, float* sum_gx,
                                float* sum_g) override {
    return Launched(kernels::NormPartGradientSumsCuda(part, args, sum_gx, sum_g, place_.stream()),
                    "NormPartGradientSums");
  }
  absl::Status NormBackward(const kernels::NormPart& part,
                            const kernels::NormPartBackwardArgs& args, const float* mean_gx,
                            const float* mean_g,
                            const kernels::NormPartGradients& gradients) override {
    const size_t bytes = kernels::NormPartCudaWorkspaceBytes(part);
    GEMINID_ASSIGN_OR_RETURN(auto scratch, Scratch<std::byte>::Allocate(*place_.resources, bytes));
    return Launched(kernels::NormPartBackwardCuda(part, args, mean_gx, mean_g, gradients,
                                                  scratch.data(), bytes, place_.stream()),
                    "NormPartBackward");
  }

  absl::Status EmbeddingForward(const kernels::EmbeddingShape& shape, const int32_t* ids,
                                const float* table, float* y) override {
    return place_.math.Of<float>().EmbeddingForward(*place_.resources, shape, ids, table,
                                                    /*positions=*/nullptr, /*sequence=*/0, y);
  }
  absl::Status EmbeddingBackward(const kernels::EmbeddingShape& shape, const int32_t* ids,
                                 const float* dy, float* dtable) override {
    return place_.math.Of<float>().EmbeddingBackward(*place_.resources, shape, ids, dy, dtable,
                                                     /*accumulate=*/false);
  }

  absl::Status LogitsMax(const kernels::CrossEntropyPart& part, const float* logits,
                         float* max) override {
    return Launched(kernels::CrossEntropyPartMaxCuda(part, logits, max, place_.stream()),
                    "CrossEntropyPartMax");
  }
  absl::Status LogitsSums(const kernels::CrossEntropyPart& part, const float* logits,
                          const int32_t* targets, const float* max, float* sums,
                          float* at_target) override {
    return Launched(kernels::CrossEntropyPartSumsCuda(part, logits, targets, max, sums, at_target,
                                                      place_.stream()),
                    "CrossEntropyPartSums");
  }
  absl::Status LogitsGradient(const kernels::CrossEntropyPart& part, const float* logits,
                              const int32_t* targets, const float* max, const float* sums,
                              float grad_scale, float* dlogits) override {
    return Launched(kernels::CrossEntropyPartGradientCuda(part, logits, targets, max, sums,
                                                          grad_scale, dlogits, place_.stream()),
                    "CrossEntropyPartGradient");
  }

 private:
  OperandMath<float>& OfFloat() override { return of_float_; }
  OperandMath<BFloat16>& OfBFloat16() override { return of_bfloat16_; }

  Place place_;
  GpuOperandMath<float> of_float_{place_};
  GpuOperandMath<BFloat16> of_bfloat16_{place_};
};

}  // namespace

std::unique_ptr<GpuLayerMath> GpuLayerMath::Make(const ModelKernels& math, GpuQueue& queue) {
  return std::make_unique<GpuMath>(math, queue);
}

}  // namespace geminid::trainer
