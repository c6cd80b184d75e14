// libcublasLt of the double: products by the host's arithmetic, on the streams of its driver. It
// refuses what the documentation of CUDA 13 says it refuses. Like the real library, it chooses
// among algorithms with different orders of sums, by everything that the caller says of a product.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "gpu/cublaslt_api.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/float16.h"
#include "tests/gpu/double/faults.h"
#include "tests/gpu/double/functions.h"
#include "tests/gpu/double/hooks.h"

// The tags of gpu/cublaslt_api.h, defined for this library.
namespace geminid::gpu {
struct LtHandleTag {};
struct LtMatmulTag {
  int32_t left_transposed = 0;
  int32_t right_transposed = 0;
  uint32_t epilogue = static_cast<uint32_t>(LtEpilogue::kDefault);
  const void* bias = nullptr;
};
struct LtLayoutTag {  // column-major
  LtType type = LtType::kFp32;
  uint64_t rows = 0;
  uint64_t cols = 0;
  int64_t stride = 0;
};
struct LtPreferenceTag {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = 7;
  uint32_t alignment[4] = {256, 256, 256, 256};
};
}  // namespace geminid::gpu

namespace geminid::gpu_double {
namespace {

using namespace geminid::gpu;  // NOLINT: this file is one library

constexpr size_t kVersion = 130100;
constexpr uint64_t kAlgorithmMagic = 0x6c742d646f75626c;
constexpr uint64_t kMostParts = 4;
constexpr uint64_t kWorkspaceAlignment = 16;
// The content of an algorithm: its magic, its parts, and the alignment of its operands.
constexpr size_t kAlignmentsAt = 2;

LtStatus Pass(int function) { return static_cast<LtStatus>(CountCall(function)); }

size_t BytesOf(LtType type) { return type == LtType::kFp32 ? 4 : 2; }
bool IsKnown(LtType type) {
  return type == LtType::kFp32 || type == LtType::kFp16 || type == LtType::kBf16;
}

float Load(const std::byte* data, LtType type, uint64_t at) {
  if (type == LtType::kFp32) {
    float value;
    std::memcpy(&value, data + at * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + at * sizeof(bits), sizeof(bits));
  return type == LtType::kBf16 ? kernels::BFloat16{bits}.ToFloat()
                               : kernels::Float16{bits}.ToFloat();
}

void Store(std::byte* data, LtType type, uint64_t at, float value) {
  if (type == LtType::kFp32) {
    std::memcpy(data + at * sizeof(value), &value, sizeof(value));
    return;
  }
  const uint16_t bits = type == LtType::kBf16 ? kernels::BFloat16::FromFloat(value).bits
                                              : kernels::Float16::FromFloat(value).bits;
  std::memcpy(data + at * sizeof(bits), &bits, sizeof(bits));
}

uint64_t BytesOf(const LtLayoutTag& layout) {
  const uint64_t elements = (layout.cols - 1) * static_cast<uint64_t>(layout.stride) + layout.rows;
  return elements * BytesOf(layout.type);
}

// All data of one product, because descriptors may change once the call has returned.
struct Product {
  LtMatmulTag operation;
  LtLayoutTag left, right, old, result;
  const void *left_data, *right_data, *old_data;
  void *result_data, *workspace;
  float alpha, beta;
  uint64_t parts;
  uint64_t depth;
  uint64_t workspace_bytes;
};

uint64_t RowsOf(const LtLayoutTag& layout, int32_t transposed) {
  return transposed != 0 ? layout.cols : layout.rows;
}
uint64_t ColsOf(const LtLayoutTag& layout, int32_t transposed) {
  return transposed != 0 ? layout.rows : layout.cols;
}

bool IsLayout(const LtLayoutTag& layout) {
  return layout.rows > 0 && layout.cols > 0 && layout.stride > 0 &&
         static_cast<uint64_t>(layout.stride) >= layout.rows && IsKnown(layout.type);
}

// Whether the shapes of the matrices match.
bool Fits(const LtMatmulTag& operation, const LtLayoutTag& left, const LtLayoutTag& right,
          const LtLayoutTag& old, const LtLayoutTag& result) {
  for (const LtLayoutTag& layout : {left, right, old, result}) {
    if (!IsLayout(layout)) return false;
  }
  return RowsOf(left, operation.left_transposed) == result.rows &&
         ColsOf(right, operation.right_transposed) == result.cols &&
         ColsOf(left, operation.left_transposed) == RowsOf(right, operation.right_transposed) &&
         old.rows == result.rows && old.cols == result.cols && old.type == result.type;
}

bool AreSupported(const LtLayoutTag& left, const LtLayoutTag& right, const LtLayoutTag& result) {
  return left.type == right.type && (result.type == left.type || result.type == LtType::kFp32);
}

// The elements of a column of the result that the processor sums at once.
constexpr uint64_t kLanes = 8;
using Lanes __attribute__((vector_size(kLanes * sizeof(float)))) = float;

// op(left) as [depth][rows], each row of it filled up with zeros to whole Lanes.
std::vector<Lanes> WidenLeft(const Product& p, const std::byte* left) {
  const uint64_t groups = (p.result.rows + kLanes - 1) / kLanes;
  const auto stride = static_cast<uint64_t>(p.left.stride);
  std::vector<Lanes> wide(p.depth * groups);
  for (uint64_t e = 0; e < p.depth; ++e) {
    for (uint64_t row = 0; row < p.result.rows; ++row) {
      const uint64_t at = p.operation.left_transposed != 0 ? row * stride + e : e * stride + row;
      wide[e * groups + row / kLanes][row % kLanes] = Load(left, p.left.type, at);
    }
  }
  return wide;
}

// Column `col` of op(right).
std::vector<float> WidenRight(const Product& p, const std::byte* right, uint64_t col) {
  const auto stride = static_cast<uint64_t>(p.right.stride);
  std::vector<float> wide(p.depth);
  for (uint64_t e = 0; e < p.depth; ++e) {
    const uint64_t at = p.operation.right_transposed != 0 ? e * stride + col : col * stride + e;
    wide[e] = Load(right, p.right.type, at);
  }
  return wide;
}

// The sums over each part of the depth, each in increasing order, go to sums[part][col][row].
void SumParts(const Product& p, const std::byte* left, const std::byte* right, std::byte* sums) {
  const uint64_t rows = p.result.rows;
  const uint64_t groups = (rows + kLanes - 1) / kLanes;
  const std::vector<Lanes> wide_left = WidenLeft(p, left);
  for (uint64_t col = 0; col < p.result.cols; ++col) {
    const std::vector<float> wide_right = WidenRight(p, right, col);
    for (uint64_t part = 0; part < p.parts; ++part) {
      std::byte* const to = sums + (part * p.result.cols + col) * rows * sizeof(float);
      for (uint64_t group = 0; group < groups; ++group) {
        Lanes sum = {};
        for (uint64_t e = p.depth * part / p.parts; e < p.depth * (part + 1) / p.parts; ++e) {
          sum += wide_left[e * groups + group] * wide_right[e];
        }
        const uint64_t first = group * kLanes;
        std::memcpy(to + first * sizeof(float), &sum,
                    std::min(kLanes, rows - first) * sizeof(float));
      }
    }
  }
}

CUresult Multiply(const Product& p, const Hooks& hooks) {
  const auto at = [&](const void* address, uint64_t bytes, bool writes) {
    return static_cast<std::byte*>(hooks.mirror(address, bytes, writes));
  };
  const bool has_bias = p.operation.epilogue == static_cast<uint32_t>(LtEpilogue::kBias);
  const uint64_t sum_bytes = p.parts * p.result.rows * p.result.cols * sizeof(float);
  const std::byte* const left = at(p.left_data, BytesOf(p.left), false);
  const std::byte* const right = at(p.right_data, BytesOf(p.right), false);
  std::byte* const result = at(p.result_data, BytesOf(p.result), true);
  const std::byte* const old = p.beta == 0 ? result : at(p.old_data, BytesOf(p.old), false);
  const std::byte* const bias =
      has_bias ? at(p.operation.bias, p.result.rows * BytesOf(p.result.type), false) : result;
  std::vector<std::byte> own_sums(p.parts == 1 ? sum_bytes : 0);
  std::byte* const sums = p.parts == 1 ? own_sums.data() : at(p.workspace, sum_bytes, true);
  for (const std::byte* const place : {left, right, static_cast<const std::byte*>(result), old,
                                       bias, static_cast<const std::byte*>(sums)}) {
    if (place == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  const uint64_t elements = p.result.rows * p.result.cols;
  SumParts(p, left, right, sums);
  for (uint64_t i = 0; i < elements; ++i) {
    const uint64_t row = i % p.result.rows;
    const uint64_t col = i / p.result.rows;
    float value = 0;
    for (uint64_t part = 0; part < p.parts; ++part) {
      value += Load(sums, LtType::kFp32, part * elements + i);
    }
    value *= p.alpha;
    if (has_bias) value += Load(bias, p.result.type, row);
    if (p.beta != 0) {
      value += p.beta * Load(old, p.old.type, col * static_cast<uint64_t>(p.old.stride) + row);
    }
    Store(result, p.result.type, col * static_cast<uint64_t>(p.result.stride) + row, value);
  }
  return CUDA_SUCCESS;
}

CUresult RunProduct(void* data) {
  const std::unique_ptr<Product> product(static_cast<Product*>(data));
  return Multiply(*product, *FindHooks());
}

template <typename T>
LtStatus Make(int function, T** made) {
  if (const LtStatus fault = Pass(function); fault != LtStatus::kSuccess) return fault;
  if (made == nullptr) return LtStatus::kInvalidValue;
  *made = new T;
  return LtStatus::kSuccess;
}

template <typename T>
LtStatus End(int function, T* made) {
  if (const LtStatus fault = Pass(function); fault != LtStatus::kSuccess) return fault;
  delete made;
  return LtStatus::kSuccess;
}

template <typename T>
LtStatus Take(const void* value, size_t bytes, T* to) {
  if (value == nullptr || bytes != sizeof(T)) return LtStatus::kInvalidValue;
  std::memcpy(to, value, sizeof(T));
  return LtStatus::kSuccess;
}

// The number of parts in which the depth is summed. It depends on everything that the caller says,
// so a product has the same bits only for the same description.
uint64_t ChooseParts(const LtMatmulTag& operation, const LtLayoutTag& left,
                     const LtLayoutTag& result, const LtPreferenceTag& preference) {
  const uint64_t depth = ColsOf(left, operation.left_transposed);
  uint64_t told = result.rows * 31 + result.cols * 17 + depth;
  told +=
      static_cast<uint64_t>(std::countr_zero(reinterpret_cast<uintptr_t>(operation.bias) | 256));
  for (const uint32_t alignment : preference.alignment) told += std::bit_width(alignment);
  const uint64_t bytes = result.rows * result.cols * sizeof(float);
  uint64_t parts = std::min({1 + told % kMostParts, depth, preference.workspace_bytes / bytes});
  if ((preference.reductions & kLtReductionComputeType) == 0) parts = 1;
  return std::max<uint64_t>(parts, 1);
}

bool AreAligned(std::initializer_list<const void*> operands, const uint64_t* alignments) {
  return std::all_of(operands.begin(), operands.end(), [&](const void* operand) {
    return reinterpret_cast<uintptr_t>(operand) % *alignments++ == 0;
  });
}

}  // namespace
}  // namespace geminid::gpu_double

#define GEMINID_EXPORT extern "C" __attribute__((visibility("default")))
using namespace geminid::gpu_double;  // NOLINT: this file is one library
using namespace geminid::gpu;         // NOLINT

// The names are the real library's.
// NOLINTBEGIN(readability-identifier-naming)
GEMINID_EXPORT size_t cublasLtGetVersion() { return kVersion; }
GEMINID_EXPORT const char* cublasLtGetStatusString(LtStatus status) {
  switch (status) {
    case LtStatus::kSuccess:
      return "success";
    case LtStatus::kNotInitialized:
      return "the library was not initialized";
    case LtStatus::kAllocFailed:
      return "the resource allocation failed";
    case LtStatus::kInvalidValue:
      return "an unsupported value or parameter was passed to the function";
    case LtStatus::kExecutionFailed:
      return "the function failed to launch on the GPU";
    case LtStatus::kNotSupported:
      return "the requested functionality is not supported";
    default:
      return "unrecognized status";
  }
}
GEMINID_EXPORT LtStatus cublasLtCreate(LtHandle* handle) {
  const LtStatus made = Make(kLtIndex_create, handle);
  if (made != LtStatus::kSuccess) return made;
  const Hooks* const hooks = FindHooks();
  if (hooks != nullptr && hooks->current_device() >= 0) return LtStatus::kSuccess;
  delete *handle;
  return LtStatus::kNotInitialized;
}
GEMINID_EXPORT LtStatus cublasLtDestroy(LtHandle handle) { return End(kLtIndex_destroy, handle); }

GEMINID_EXPORT LtStatus cublasLtMatmulDescCreate(LtMatmul* matmul, LtCompute compute,
                                                 LtType scale) {
  const LtStatus made = Make(kLtIndex_matmul_create, matmul);
  if (made != LtStatus::kSuccess) return made;
  if (compute == LtCompute::kFp32 && scale == LtType::kFp32) return made;
  delete *matmul;
  return LtStatus::kNotSupported;  // not supported by this double
}
GEMINID_EXPORT LtStatus cublasLtMatmulDescDestroy(LtMatmul matmul) {
  return End(kLtIndex_matmul_destroy, matmul);
}
GEMINID_EXPORT LtStatus cublasLtMatmulDescSetAttribute(LtMatmul matmul, LtMatmulAttribute attribute,
                                                       const void* value, size_t bytes) {
  if (const LtStatus fault = Pass(kLtIndex_matmul_set); fault != LtStatus::kSuccess) return fault;
  switch (attribute) {
    case LtMatmulAttribute::kTransposeA:
      return Take(value, bytes, &matmul->left_transposed);
    case LtMatmulAttribute::kTransposeB:
      return Take(value, bytes, &matmul->right_transposed);
    case LtMatmulAttribute::kEpilogue:
      return Take(value, bytes, &matmul->epilogue);
    case LtMatmulAttribute::kBiasPointer:
      return Take(value, bytes, &matmul->bias);
  }
  return LtStatus::kInvalidValue;
}

GEMINID_EXPORT LtStatus cublasLtMatrixLayoutCreate(LtLayout* layout, LtType type, uint64_t rows,
                                                   uint64_t cols, int64_t stride) {
  const LtStatus made = Make(kLtIndex_layout_create, layout);
  if (made == LtStatus::kSuccess) **layout = {type, rows, cols, stride};
  return made;
}
GEMINID_EXPORT LtStatus cublasLtMatrixLayoutDestroy(LtLayout layout) {
  return End(kLtIndex_layout_destroy, layout);
}

GEMINID_EXPORT LtStatus cublasLtMatmulPreferenceCreate(LtPreference* preference) {
  return Make(kLtIndex_preference_create, preference);
}
GEMINID_EXPORT LtStatus cublasLtMatmulPreferenceDestroy(LtPreference preference) {
  return End(kLtIndex_preference_destroy, preference);
}
GEMINID_EXPORT LtStatus cublasLtMatmulPreferenceSetAttribute(LtPreference preference,
                                                             LtPreferenceAttribute attribute,
                                                             const void* value, size_t bytes) {
  const LtStatus fault = Pass(kLtIndex_preference_set);
  if (fault != LtStatus::kSuccess) return fault;
  switch (attribute) {
    case LtPreferenceAttribute::kMaxWorkspaceBytes:
      return Take(value, bytes, &preference->workspace_bytes);
    case LtPreferenceAttribute::kReductionMask:
      return Take(value, bytes, &preference->reductions);
    case LtPreferenceAttribute::kAlignmentA:
    case LtPreferenceAttribute::kAlignmentB:
    case LtPreferenceAttribute::kAlignmentC:
    case LtPreferenceAttribute::kAlignmentD:
      return Take(value, bytes,
                  &preference->alignment[static_cast<int>(attribute) -
                                         static_cast<int>(LtPreferenceAttribute::kAlignmentA)]);
  }
  return LtStatus::kInvalidValue;
}

GEMINID_EXPORT LtStatus cublasLtMatmulAlgoGetHeuristic(LtHandle handle, LtMatmul matmul,
                                                       LtLayout left, LtLayout right, LtLayout old,
                                                       LtLayout result, LtPreference preference,
                                                       int wanted, LtHeuristic* answers,
                                                       int* count) {
  if (const LtStatus fault = Pass(kLtIndex_heuristic); fault != LtStatus::kSuccess) return fault;
  if (handle == nullptr) return LtStatus::kNotInitialized;
  if (wanted <= 0 || answers == nullptr || count == nullptr) return LtStatus::kInvalidValue;
  if (!Fits(*matmul, *left, *right, *old, *result)) return LtStatus::kInvalidValue;
  *count = 0;
  if (!AreSupported(*left, *right, *result)) return LtStatus::kNotSupported;
  const uint64_t parts = ChooseParts(*matmul, *left, *result, *preference);
  answers[0] = {};
  answers[0].algorithm = {{kAlgorithmMagic, parts}};
  answers[0].workspace_bytes = parts == 1 ? 0 : parts * result->rows * result->cols * sizeof(float);
  for (size_t i = 0; i < std::size(preference->alignment); ++i) {
    answers[0].algorithm.data[kAlignmentsAt + i] = preference->alignment[i];
  }
  *count = 1;
  return LtStatus::kSuccess;
}

GEMINID_EXPORT LtStatus cublasLtMatmul(LtHandle handle, LtMatmul matmul, const void* alpha,
                                       const void* left, LtLayout left_layout, const void* right,
                                       LtLayout right_layout, const void* beta, const void* old,
                                       LtLayout old_layout, void* result, LtLayout result_layout,
                                       const LtAlgorithm* algorithm, void* workspace,
                                       size_t workspace_bytes, CUstream stream) {
  if (const LtStatus fault = Pass(kLtIndex_matmul); fault != LtStatus::kSuccess) return fault;
  if (handle == nullptr) return LtStatus::kNotInitialized;
  if (!Fits(*matmul, *left_layout, *right_layout, *old_layout, *result_layout)) {
    return LtStatus::kInvalidValue;
  }
  auto product =
      std::make_unique<Product>(Product{.operation = *matmul,
                                        .left = *left_layout,
                                        .right = *right_layout,
                                        .old = *old_layout,
                                        .result = *result_layout,
                                        .left_data = left,
                                        .right_data = right,
                                        .old_data = old,
                                        .result_data = result,
                                        .workspace = workspace,
                                        .alpha = *static_cast<const float*>(alpha),
                                        .beta = *static_cast<const float*>(beta),
                                        .parts = algorithm == nullptr ? 1 : algorithm->data[1],
                                        .depth = ColsOf(*left_layout, matmul->left_transposed),
                                        .workspace_bytes = workspace_bytes});
  const uint64_t* const alignments =
      algorithm == nullptr ? nullptr : algorithm->data + kAlignmentsAt;
  if (alignments != nullptr && !AreAligned({left, right, old, result}, alignments)) {
    return LtStatus::kInvalidValue;
  }
  const uint64_t needed = product->parts == 1 ? 0
                                              : product->parts * result_layout->rows *
                                                    result_layout->cols * sizeof(float);
  if (algorithm != nullptr && algorithm->data[0] != kAlgorithmMagic) return LtStatus::kInvalidValue;
  if (workspace_bytes < needed) return LtStatus::kInvalidValue;
  if (needed > 0 && reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0) {
    return LtStatus::kInvalidValue;
  }
  if (FindHooks()->enqueue(stream, RunProduct, product.get()) != CUDA_SUCCESS) {
    return LtStatus::kExecutionFailed;
  }
  product.release();  // RunProduct owns it
  return LtStatus::kSuccess;
}
// NOLINTEND(readability-identifier-naming)
