// Adds up the output of a sublayer that goes to the residual stream.
#ifndef GEMINID_TRAINING_TRANSFORMER_OUTPUT_SUM_H_
#define GEMINID_TRAINING_TRANSFORMER_OUTPUT_SUM_H_

#include <cstddef>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "training/nn/blocks.h"
#include "training/nn/layer_share.h"
#include "training/nn/model_kernels.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {

// The fp32 sum over the column groups of an MLP's output. It uses `out` itself if `out` is fp32.
template <typename T>
class OutputSum {
 public:
  // Starts from x, which may be `out`. Starts from zeros if dropout comes before the sum with x,
  // and on all ranks but the first if ranks share layers.
  static absl::StatusOr<OutputSum> Begin(const Resources& resources, const SublayerContext& context,
                                         const T* x, T* out) {
    OutputSum sum(context, x, out);
    const size_t size = sum.rows_ * sum.cols_;
    const bool from_zeros =
        sum.drops() || (context.layers != nullptr && context.layers->rank() > 0);
    const bool keeps_out = x == out && from_zeros;  // x is added at the end
    if (!std::is_same_v<T, float> || keeps_out) {
      GEMINID_ASSIGN_OR_RETURN(sum.storage_, Scratch<float>::Allocate(resources, size));
      sum.data_ = sum.storage_.data();
    } else {
      sum.data_ = reinterpret_cast<float*>(out);
    }
    const KernelsOf<T>& math = KernelsFor<T>(resources);
    if (from_zeros) {
      GEMINID_RETURN_IF_ERROR(math.Zero(resources, sum.data_, size * sizeof(float)));
    } else if (sum.data_ != Address(x)) {
      GEMINID_RETURN_IF_ERROR(math.Widen(resources, x, size, sum.data_));
    }
    return sum;
  }

  Matrix<float> values() const { return {data_, rows_, cols_}; }

  // Sums over the ranks that share layers, adds the bias if there is one, and writes the sublayer's
  // output to `out`. `spare` has as many elements as `out`.
  absl::Status Finish(const Resources& resources, const T* bias, T* spare) {
    const KernelsOf<T>& math = KernelsFor<T>(resources);
    GEMINID_RETURN_IF_ERROR(SumOverRanks(resources, *context_, values()));
    if (bias != nullptr) GEMINID_RETURN_IF_ERROR(math.AddBias(resources, bias, values()));
    if (!drops()) {
      return data_ == Address(out_) ? absl::OkStatus() : math.Round(resources, data_, size(), out_);
    }
    GEMINID_RETURN_IF_ERROR(math.Round(resources, data_, size(), spare));
    if (x_ != out_) {
      GEMINID_RETURN_IF_ERROR(
          math.Copy(resources, Matrix<const T>(x_, rows_, cols_), Matrix<T>(out_, rows_, cols_)));
    }
    return math.AddDropped(resources, context_->dropout, Matrix<const T>(spare, rows_, cols_),
                           out_);
  }

 private:
  OutputSum(const SublayerContext& context, const T* x, T* out)
      : context_(&context),
        x_(x),
        out_(out),
        rows_(context.shape.tokens()),
        cols_(context.config->hidden) {}

  bool drops() const { return context_->dropout.dropout.active(); }
  size_t size() const { return rows_ * cols_; }
  static const void* Address(const T* data) { return data; }

  const SublayerContext* context_;
  const T* x_;
  T* out_;
  size_t rows_;
  size_t cols_;
  Scratch<float> storage_;
  float* data_ = nullptr;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_OUTPUT_SUM_H_
