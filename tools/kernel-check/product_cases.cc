// Products, copies between their matrices, and dropout.
#include <cstdint>

#include "kernels/model/dropout/dropout_cuda.h"
#include "kernels/model/elementwise/copy_rows_cuda.h"
#include "kernels/model/matmul/matmul_cuda.h"
#include "kernels/model/matmul/rows.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

using kernels::BFloat16;
using kernels::MatmulShape;
using kernels::Status;
using kernels::Transpose;

constexpr Transpose kNo = Transpose::kNo;
constexpr Transpose kYes = Transpose::kYes;

// A power of two, so that the host's twin can scale its operand instead.
constexpr float kScale = 0.5F;

// One element; less than a tile; whole tiles; partial tiles; long sums; every transposition; rows
// with gaps between them.
std::vector<MatmulShape> ComparedShapes() {
  return {{.m = 1, .n = 1, .k = 1},
          {.m = 3, .n = 5, .k = 7, .bias = true},
          {.m = 64, .n = 64, .k = 32, .transpose_b = kYes},
          {.m = 65, .n = 70, .k = 33, .transpose_a = kYes, .accumulate = true},
          {.m = 130, .n = 17, .k = 100, .transpose_a = kYes, .transpose_b = kYes, .bias = true},
          {.m = 9,
           .n = 40,
           .k = 300,
           .accumulate = true,
           .bias = true,
           .a_stride = 311,
           .b_stride = 43,
           .c_stride = 41},
          {.m = 33,
           .n = 66,
           .k = 31,
           .transpose_b = kYes,
           .a_stride = 32,
           .b_stride = 47,
           .c_stride = 96}};
}
constexpr MatmulShape kTimedShape = {.m = 4096, .n = 4096, .k = 4096, .transpose_b = kYes};

size_t StrideOr(size_t stride, size_t cols) { return stride == 0 ? cols : stride; }

// `rows` x `cols` stored elements, or their transpose, dense and times `factor`, which is exact.
template <typename T>
std::vector<T> Dense(const T* stored, size_t stride, bool transposed, size_t rows, size_t cols,
                     float factor) {
  std::vector<T> dense(rows * cols);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      const T value = transposed ? stored[c * stride + r] : stored[r * stride + c];
      if constexpr (std::is_same_v<T, float>) {
        dense[r * cols + c] = value * factor;
      } else {
        dense[r * cols + c] = T::FromFloat(value.ToFloat() * factor);
      }
    }
  }
  return dense;
}

template <typename In, typename Out>
void CheckProduct(Trial& trial, const MatmulShape& s) {
  const bool a_turned = s.transpose_a == kYes;
  const bool b_turned = s.transpose_b == kYes;
  const size_t a_stride = StrideOr(s.a_stride, a_turned ? s.m : s.k);
  const size_t b_stride = StrideOr(s.b_stride, b_turned ? s.k : s.n);
  const size_t c_stride = StrideOr(s.c_stride, s.n);
  const size_t shift = s.bias ? 1 : 0;  // off words, too
  const auto a = trial.In(RandomArray<In>((a_turned ? s.k : s.m) * a_stride, 1), shift);
  const auto b = trial.In(RandomArray<In>((b_turned ? s.n : s.k) * b_stride, 2), shift);
  const auto bias = trial.In(RandomArray<Out>(s.n, 3), shift);
  const auto c = trial.Out("c", RandomArray<Out>(s.m * c_stride, 4), shift);
  trial.Computes(2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) *
                 static_cast<double>(s.k));
  trial.Run(
      [&] {
        const auto left = Dense(a.host, a_stride, a_turned, s.m, s.k, kScale);
        const auto right = Dense(b.host, b_stride, b_turned, s.k, s.n, 1.0F);
        const MatmulShape plain = {.m = s.m,
                                   .n = s.n,
                                   .k = s.k,
                                   .accumulate = s.accumulate,
                                   .bias = s.bias,
                                   .c_stride = c_stride};
        return kernels::MatmulByRows<In, Out>(plain, left.data(), right.data(), bias.host, c.host);
      },
      [&] {
        return kernels::MatmulCuda<In, Out>(s, kScale, a.device, b.device, bias.device, c.device,
                                            nullptr);
      });
}

template <typename In, typename Out>
KernelCase ProductCase(const char* name) {
  KernelCase one;
  one.name = name;
  for (const MatmulShape& shape : ComparedShapes()) {
    one.compared.emplace_back([shape](Trial& trial) { CheckProduct<In, Out>(trial, shape); });
  }
  one.timed = [](Trial& trial) { CheckProduct<In, Out>(trial, kTimedShape); };
  return one;
}

struct CopiedRows {
  size_t rows;
  size_t cols;
  size_t from_stride;
  size_t to_stride;
};

template <typename T>
void CheckCopy(Trial& trial, const CopiedRows& copy) {
  const auto from = trial.In(RandomArray<T>(copy.rows * copy.from_stride, 5));
  const auto to = trial.Out("to", RandomArray<T>(copy.rows * copy.to_stride, 6));
  trial.Run(
      [&] {
        for (size_t i = 0; i < copy.rows * copy.cols; ++i) {
          const size_t r = i / copy.cols;
          const size_t c = i % copy.cols;
          to.host[r * copy.to_stride + c] = from.host[r * copy.from_stride + c];
        }
        return Status::kOk;
      },
      [&] {
        return kernels::CopyRowsCuda<T>(copy.rows, copy.cols, from.device, copy.from_stride,
                                        to.device, copy.to_stride, nullptr);
      });
}

template <typename T>
KernelCase CopyCase(const char* name) {
  KernelCase one;
  one.name = name;
  for (const CopiedRows& copy : {CopiedRows{1, 1, 1, 1}, CopiedRows{7, 9, 11, 20},
                                 CopiedRows{5, 64, 64, 192}, CopiedRows{3, 4100, 4100, 4104}}) {
    one.compared.emplace_back([copy](Trial& trial) { CheckCopy<T>(trial, copy); });
  }
  one.timed = [](Trial& trial) { CheckCopy<T>(trial, {8192, 4096, 4096, 8192}); };
  return one;
}

struct DroppedArray {
  size_t count;
  size_t shift;    // elements before a word
  uint64_t first;  // element of the pattern
};

template <typename T>
T Rounded(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return T::FromFloat(value);
  }
}
float Widened(float value) { return value; }
float Widened(BFloat16 value) { return value.ToFloat(); }

template <typename T>
void CheckDropout(Trial& trial, const DroppedArray& array) {
  const kernels::DropoutPattern pattern = {.stream = 77, .below = 6554, .kept = 1.11F};
  const auto x = trial.In(RandomArray<T>(array.count, 7), array.shift);
  const auto y = trial.Out("y", RandomArray<T>(array.count, 8), array.shift);
  const auto sum = trial.Out("sum", RandomArray<T>(array.count, 9), array.shift, 0, 2);
  trial.Run(
      [&] {
        for (size_t i = 0; i < array.count; ++i) {
          const uint64_t element = array.first + i;
          const float value = Widened(x.host[i]) * pattern.Factor(pattern.Draw(element), element);
          y.host[i] = Rounded<T>(value);
          sum.host[i] = Rounded<T>(Widened(sum.host[i]) + value);
        }
        return Status::kOk;
      },
      [&] {
        const Status status =
            kernels::DropoutCuda<T>(pattern, array.first, array.count, x.device, y.device, nullptr);
        if (status != Status::kOk) return status;
        return kernels::AddDropoutCuda<T>(pattern, array.first, array.count, x.device, sum.device,
                                          nullptr);
      });
}

template <typename T>
KernelCase DropoutCase(const char* name) {
  KernelCase one;
  one.name = name;
  for (const DroppedArray& array :
       {DroppedArray{1, 0, 0}, DroppedArray{37, 1, 6}, DroppedArray{5000, 0, uint64_t{1} << 33}}) {
    one.compared.emplace_back([array](Trial& trial) { CheckDropout<T>(trial, array); });
  }
  one.timed = [](Trial& trial) { CheckDropout<T>(trial, {size_t{32} << 20, 0, 0}); };
  return one;
}

}  // namespace

std::vector<KernelCase> ProductCases() {
  return {ProductCase<float, float>("product, fp32"),
          ProductCase<BFloat16, BFloat16>("product, bf16"),
          ProductCase<BFloat16, float>("product, bf16 to fp32"),
          CopyCase<float>("rows, fp32"),
          CopyCase<BFloat16>("rows, bf16"),
          DropoutCase<float>("dropout, fp32"),
          DropoutCase<BFloat16>("dropout, bf16")};
}

}  // namespace geminid::kernel_check
