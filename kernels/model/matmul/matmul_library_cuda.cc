#include "kernels/model/matmul/matmul_library_cuda.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>
#include <utility>

#include "kernels/model/matmul/checks.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {
namespace {

using gpu::LtStatus;
using gpu::LtType;

// Enough for vector loads and the tensor memory accelerator; more alignment changes nothing.
constexpr uint64_t kAlignmentMax = 16;
// The workspace that the library's vendor advises for its largest GPUs.
constexpr uint64_t kWorkspaceMax = uint64_t{32} << 20;
// Copies of the fp32 result, for sums that are split into parts.
constexpr uint64_t kWorkspaceCopies = 8;

template <typename T>
constexpr LtType TypeOf() {
  if constexpr (std::is_same_v<T, float>) return LtType::kFp32;
  if constexpr (std::is_same_v<T, BFloat16>) return LtType::kBf16;
}

uint64_t AlignmentOf(const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address) | kAlignmentMax;
  return uint64_t{1} << std::countr_zero(value);
}

// Depends on the shape alone: with free memory as the limit, the choice would depend on the arena.
uint64_t WorkspaceLimit(const MatmulShape& shape) {
  const uint64_t result = shape.m * shape.n * sizeof(float);
  return std::min(kWorkspaceMax, kWorkspaceCopies * result);
}

bool IsYes(Transpose transpose) { return transpose == Transpose::kYes; }

template <typename In, typename Out>
Status CheckProduct(const MatmulOperands<In, Out>& operands, MatmulShape* shape) {
  if (const Status status = NormaliseMatmul(shape); status != Status::kOk) return status;
  if (!std::isfinite(operands.scale)) return Status::kInvalidParameter;
  return CheckBuffers({Buffer::Of(operands.a, StorageA(*shape).span()),
                       Buffer::Of(operands.b, StorageB(*shape).span()),
                       Buffer::Of(operands.bias, shape->bias ? shape->n : 0)},
                      {Buffer::Of(operands.c, StorageC(*shape).span())});
}

}  // namespace

// A product that needs a plan, with its strides filled in.
struct MatmulLibrary::Question {
  MatmulShape shape;
  LtType in;
  LtType out;
  uint64_t a_alignment;
  uint64_t b_alignment;
  uint64_t bias_alignment;
  uint64_t c_alignment;

  Key AsKey() const {
    return {shape.m,
            shape.n,
            shape.k,
            IsYes(shape.transpose_a),
            IsYes(shape.transpose_b),
            shape.accumulate,
            shape.bias,
            shape.a_stride,
            shape.b_stride,
            shape.c_stride,
            static_cast<uint64_t>(in),
            static_cast<uint64_t>(out),
            a_alignment,
            b_alignment,
            bias_alignment,
            c_alignment};
  }
};

std::unique_ptr<MatmulLibrary> MatmulLibrary::Load(int driver_version, std::string* error) {
  gpu::CublasLtApi api;
  if (!gpu::LoadCublasLtApi(driver_version, &api, error)) return nullptr;
  gpu::LtHandle handle = nullptr;
  const LtStatus status = api.create(&handle);
  if (status != LtStatus::kSuccess) {
    *error = api.path + " does not start: " + api.status_string(status);
    return nullptr;
  }
  return std::unique_ptr<MatmulLibrary>(new MatmulLibrary(std::move(api), handle));
}

MatmulLibrary::~MatmulLibrary() {
  for (const auto& [key, plan] : plans_) Forget(plan);
  api_.destroy(handle_);
}

std::string MatmulLibrary::Name() const {
  return "cuBLASLt " + gpu::CublasLtVersion(api_) + " (" + api_.path + ")";
}

size_t MatmulLibrary::unsupported_shapes() const {
  return static_cast<size_t>(std::count_if(
      plans_.begin(), plans_.end(), [](const auto& entry) { return !entry.second.supported; }));
}

bool MatmulLibrary::Took(LtStatus status, const char* call) {
  if (status == LtStatus::kSuccess) return true;
  refusal_ = std::string(call) + ": " + api_.status_string(status);
  return false;
}

bool MatmulLibrary::Describe(const Question& question, MatmulPlan* plan) {
  const MatmulShape& shape = question.shape;
  const auto transpose = [](Transpose t) {
    return IsYes(t) ? gpu::LtTranspose::kYes : gpu::LtTranspose::kNo;
  };
  const auto left = transpose(shape.transpose_b);
  const auto right = transpose(shape.transpose_a);
  const auto epilogue = shape.bias ? gpu::LtEpilogue::kBias : gpu::LtEpilogue::kDefault;
  // Only the bias's alignment is read when an algorithm is chosen.
  const auto* const bias =
      shape.bias ? reinterpret_cast<const void*>(question.bias_alignment) : nullptr;
  const auto layout = [&](LtType type, const MatrixStorage& storage, gpu::LtLayout* made) {
    return Took(api_.layout_create(made, type, storage.cols, storage.rows,
                                   static_cast<int64_t>(storage.stride)),
                "cublasLtMatrixLayoutCreate");
  };
  const auto set = [&](gpu::LtMatmulAttribute attribute, const auto& value) {
    return Took(api_.matmul_set(plan->product, attribute, static_cast<const void*>(&value),
                                sizeof(value)),
                "cublasLtMatmulDescSetAttribute");
  };
  return Took(api_.matmul_create(&plan->product, gpu::LtCompute::kFp32, LtType::kFp32),
              "cublasLtMatmulDescCreate") &&
         set(gpu::LtMatmulAttribute::kTransposeA, left) &&
         set(gpu::LtMatmulAttribute::kTransposeB, right) &&
         set(gpu::LtMatmulAttribute::kEpilogue, epilogue) &&
         set(gpu::LtMatmulAttribute::kBiasPointer, bias) &&
         layout(question.in, StorageB(shape), &plan->left) &&
         layout(question.in, StorageA(shape), &plan->right) &&
         layout(question.out, StorageC(shape), &plan->result);
}

bool MatmulLibrary::Choose(const Question& question, MatmulPlan* plan) {
  gpu::LtPreference preference = nullptr;
  if (!Took(api_.preference_create(&preference), "cublasLtMatmulPreferenceCreate")) return false;
  const auto set = [&](gpu::LtPreferenceAttribute attribute, auto value) {
    return Took(api_.preference_set(preference, attribute, static_cast<const void*>(&value),
                                sizeof(value)),
                "cublasLtMatmulPreferenceSetAttribute");
  };
  using Attribute = gpu::LtPreferenceAttribute;
  const auto bytes = [](uint64_t alignment) { return static_cast<uint32_t>(alignment); };
  gpu::LtHeuristic answer = {};
  int answers = 0;
  const bool found =
      set(Attribute::kMaxWorkspaceBytes, WorkspaceLimit(question.shape)) &&
      set(Attribute::kReductionMask, uint32_t{gpu::kLtReductionComputeType}) &&
      set(Attribute::kAlignmentA, bytes(question.b_alignment)) &&
      set(Attribute::kAlignmentB, bytes(question.a_alignment)) &&
      set(Attribute::kAlignmentC, bytes(question.c_alignment)) &&
      set(Attribute::kAlignmentD, bytes(question.c_alignment)) &&
      Took(api_.heuristic(handle_, plan->product, plan->left, plan->right, plan->result,
                          plan->result, preference, 1, &answer, &answers),
           "cublasLtMatmulAlgoGetHeuristic");
  api_.preference_destroy(preference);
  if (!found || answers == 0 || answer.state != LtStatus::kSuccess) return false;
  plan->algorithm = answer.algorithm;
  plan->workspace_bytes = answer.workspace_bytes;
  return true;
}

void MatmulLibrary::Forget(const MatmulPlan& plan) {
  for (const gpu::LtLayout layout : {plan.left, plan.right, plan.result}) {
    if (layout != nullptr) api_.layout_destroy(layout);
  }
  if (plan.product != nullptr) api_.matmul_destroy(plan.product);
}

template <typename In, typename Out>
Status MatmulLibrary::Plan(const MatmulShape& shape, const MatmulOperands<In, Out>& operands,
                           const MatmulPlan** plan) {
  Question question = {.shape = shape,
                       .in = TypeOf<In>(),
                       .out = TypeOf<Out>(),
                       .a_alignment = AlignmentOf(operands.a),
                       .b_alignment = AlignmentOf(operands.b),
                       .bias_alignment = shape.bias ? AlignmentOf(operands.bias) : 0,
                       .c_alignment = AlignmentOf(operands.c)};
  if (const Status status = CheckProduct(operands, &question.shape); status != Status::kOk) {
    return status;
  }
  const auto [place, is_new] = plans_.try_emplace(question.AsKey());
  MatmulPlan& found = place->second;
  if (is_new) found.supported = Describe(question, &found) && Choose(question, &found);
  if (!found.supported) return Status::kUnsupported;
  *plan = &found;
  return Status::kOk;
}

template <typename In, typename Out>
Status MatmulLibrary::Run(const MatmulShape& shape, const MatmulPlan& plan,
                          const MatmulOperands<In, Out>& operands, void* workspace,
                          size_t workspace_bytes, CudaStream stream) {
  const Status status = CheckWorkspace(workspace, workspace_bytes, plan.workspace_bytes);
  if (status != Status::kOk) return status;
  if (shape.bias) {
    const void* const bias = operands.bias;
    if (!Took(api_.matmul_set(plan.product, gpu::LtMatmulAttribute::kBiasPointer,
                              static_cast<const void*>(&bias), sizeof(bias)),
              "cublasLtMatmulDescSetAttribute")) {
      return Status::kUnsupported;
    }
  }
  const float old = shape.accumulate ? 1.0F : 0.0F;
  const bool queued =
      Took(api_.matmul(handle_, plan.product, &operands.scale, operands.b, plan.left, operands.a,
                       plan.right, &old, operands.c, plan.result, operands.c, plan.result,
                       &plan.algorithm, workspace, plan.workspace_bytes, stream),
           "cublasLtMatmul");
  return queued ? Status::kOk : Status::kUnsupported;
}

#define GEMINID_INSTANTIATE(In, Out)                                                      \
  template Status MatmulLibrary::Plan(const MatmulShape&, const MatmulOperands<In, Out>&, \
                                      const MatmulPlan**);                                \
  template Status MatmulLibrary::Run(const MatmulShape&, const MatmulPlan&,               \
                                     const MatmulOperands<In, Out>&, void*, size_t, CudaStream)
GEMINID_INSTANTIATE(float, float);
GEMINID_INSTANTIATE(BFloat16, BFloat16);
GEMINID_INSTANTIATE(BFloat16, float);
#undef GEMINID_INSTANTIATE

}  // namespace geminid::kernels
