// libcudnn of the double: graphs of operations by the host's arithmetic, on the streams of its
// driver. It has one engine, for attention as cuDNN 9.19 supports it on an H100. It refuses the
// plans that cuDNN refused when asked without a GPU, and names the same workspace.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "gpu/cudnn_api.h"
#include "tests/gpu/double/cudnn_graph.h"
#include "tests/gpu/double/faults.h"
#include "tests/gpu/double/functions.h"
#include "tests/gpu/double/hooks.h"

// The tag of gpu/cudnn_api.h, defined for this library.
namespace geminid::gpu {
struct DnnHandleTag {
  CUstream stream = nullptr;
};
}  // namespace geminid::gpu

namespace geminid::gpu_double {
namespace {

using namespace geminid::gpu;  // NOLINT: this file is one library

constexpr size_t kVersion = 91900;
constexpr int64_t kEngine = 6;

struct Attribute {
  DnnType type = DnnType::kInt64;
  int64_t count = 0;
  std::vector<std::byte> bytes;
};

struct Descriptor {
  DnnKind kind = DnnKind::kTensor;
  bool finalized = false;
  std::map<DnnAttribute, Attribute> attributes = {};
};

Descriptor* Of(DnnDescriptor descriptor) { return static_cast<Descriptor*>(descriptor); }

DnnStatus Pass(int function) { return static_cast<DnnStatus>(CountCall(function)); }

size_t BytesOf(DnnType type) {
  switch (type) {
    case DnnType::kHandle:
    case DnnType::kDescriptor:
    case DnnType::kPointer:
    case DnnType::kInt64:
      return 8;
    case DnnType::kBoolean:
    case DnnType::kChar:
      return 1;
    default:
      return 4;
  }
}

// Reads the first `count` values of an attribute; false if it has fewer, or another type.
template <typename T>
bool Read(const Descriptor& from, DnnAttribute name, DnnType type, T* to, int64_t count = 1) {
  const auto found = from.attributes.find(name);
  if (found == from.attributes.end() || found->second.type != type) return false;
  if (found->second.count < count) return false;
  std::memcpy(static_cast<void*>(to), found->second.bytes.data(),
              static_cast<size_t>(count) * sizeof(T));
  return true;
}

const Descriptor* Finalized(const Descriptor& from, DnnAttribute name, DnnKind kind) {
  DnnDescriptor to = nullptr;
  if (!Read(from, name, DnnType::kDescriptor, static_cast<void**>(&to)) || to == nullptr) {
    return nullptr;
  }
  const Descriptor* const descriptor = Of(to);
  return descriptor->finalized && descriptor->kind == kind ? descriptor : nullptr;
}

bool TensorOf(const Descriptor& descriptor, DnnTensor* tensor) {
  return Read(descriptor, DnnAttribute::kTensorId, DnnType::kInt64, &tensor->id) &&
         Read(descriptor, DnnAttribute::kTensorType, DnnType::kDataType, &tensor->type) &&
         Read(descriptor, DnnAttribute::kTensorDimensions, DnnType::kInt64, tensor->dims.data(),
              4) &&
         Read(descriptor, DnnAttribute::kTensorStrides, DnnType::kInt64, tensor->strides.data(),
              4) &&
         Read(descriptor, DnnAttribute::kTensorIsVirtual, DnnType::kBoolean, &tensor->is_virtual) &&
         Read(descriptor, DnnAttribute::kTensorIsByValue, DnnType::kBoolean, &tensor->by_value) &&
         std::all_of(tensor->dims.begin(), tensor->dims.end(), [](int64_t d) { return d > 0; });
}

bool ReadTensor(const Descriptor& operation, DnnAttribute name, DnnTensor* tensor) {
  const Descriptor* const descriptor = Finalized(operation, name, DnnKind::kTensor);
  return descriptor != nullptr && TensorOf(*descriptor, tensor);
}

bool ReadPointwise(const Descriptor& descriptor, DnnOperation* operation) {
  const Descriptor* const pointwise =
      Finalized(descriptor, DnnAttribute::kPointwiseDescriptor, DnnKind::kPointwise);
  if (pointwise == nullptr || !Read(*pointwise, DnnAttribute::kPointwiseMode,
                                    DnnType::kPointwiseMode, &operation->pointwise)) {
    return false;
  }
  Read(*pointwise, DnnAttribute::kPointwiseAxis, DnnType::kInt64, &operation->axis);
  ReadTensor(descriptor, DnnAttribute::kPointwiseB, &operation->b);
  ReadTensor(descriptor, DnnAttribute::kPointwiseT, &operation->choose);
  return ReadTensor(descriptor, DnnAttribute::kPointwiseX, &operation->x) &&
         ReadTensor(descriptor, DnnAttribute::kPointwiseY, &operation->y);
}

bool OperationOf(const Descriptor& descriptor, DnnOperation* operation) {
  operation->kind = descriptor.kind;
  switch (descriptor.kind) {
    case DnnKind::kMatmulOperation:
      return ReadTensor(descriptor, DnnAttribute::kMatmulA, &operation->x) &&
             ReadTensor(descriptor, DnnAttribute::kMatmulB, &operation->b) &&
             ReadTensor(descriptor, DnnAttribute::kMatmulC, &operation->y);
    case DnnKind::kReductionOperation: {
      const Descriptor* const reduction =
          Finalized(descriptor, DnnAttribute::kReductionDescriptor, DnnKind::kReduction);
      return reduction != nullptr &&
             Read(*reduction, DnnAttribute::kReductionOperator, DnnType::kReductionOperator,
                  &operation->reduce) &&
             ReadTensor(descriptor, DnnAttribute::kReductionX, &operation->x) &&
             ReadTensor(descriptor, DnnAttribute::kReductionY, &operation->y);
    }
    case DnnKind::kReshapeOperation:
      return ReadTensor(descriptor, DnnAttribute::kReshapeX, &operation->x) &&
             ReadTensor(descriptor, DnnAttribute::kReshapeY, &operation->y);
    default:
      return ReadPointwise(descriptor, operation);
  }
}

bool OperationsOf(const Descriptor& graph, std::vector<DnnOperation>* operations) {
  const auto found = graph.attributes.find(DnnAttribute::kGraphOperations);
  if (found == graph.attributes.end() || found->second.count == 0) return false;
  std::vector<DnnDescriptor> descriptors(static_cast<size_t>(found->second.count));
  std::memcpy(static_cast<void*>(descriptors.data()), found->second.bytes.data(),
              found->second.bytes.size());
  for (const DnnDescriptor descriptor : descriptors) {
    DnnOperation operation;
    if (!Of(descriptor)->finalized || !OperationOf(*Of(descriptor), &operation)) return false;
    operations->push_back(operation);
  }
  return true;
}

// There is no plan for heads of a width that no engine supports.
bool HasEngine(const std::vector<DnnOperation>& operations) {
  constexpr int64_t kMost = 256, kMultiple = 8;
  return std::all_of(operations.begin(), operations.end(), [](const DnnOperation& operation) {
    if (operation.kind != DnnKind::kMatmulOperation || operation.y.is_virtual) return true;
    const int64_t width = operation.y.dims[3];
    return width <= kMost && width % kMultiple == 0;
  });
}

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Bytes for the gradients of the scores and, if several heads share keys, of each head's keys.
int64_t WorkspaceOf(const std::vector<DnnOperation>& operations) {
  int64_t bytes = 256;
  for (const DnnOperation& operation : operations) {
    const auto& d = operation.y.dims;
    const bool of_heads = operation.kind == DnnKind::kReductionOperation && !operation.y.is_virtual;
    if (of_heads) bytes += d[0] * operation.x.dims[1] * RoundUp(d[2], 128) * d[3] * 2;
    if (operation.kind == DnnKind::kReshapeOperation && operation.x.is_virtual) {
      bytes += d[0] * d[1] * RoundUp(d[2], 64) * RoundUp(d[3], 128);
    }
  }
  return bytes * static_cast<int64_t>(ThisNode().attention_workspace_factor.load());
}

DnnStatus FinalizeGraph(const Descriptor& graph) {
  std::vector<DnnOperation> operations;
  if (!graph.attributes.contains(DnnAttribute::kGraphHandle)) return DnnStatus::kBadParam;
  return OperationsOf(graph, &operations) ? DnnStatus::kSuccess : DnnStatus::kBadParam;
}

DnnStatus FinalizeOperation(const Descriptor& descriptor) {
  DnnOperation operation;
  if (!OperationOf(descriptor, &operation)) return DnnStatus::kBadParam;
  return Fits(operation) ? DnnStatus::kSuccess : DnnStatus::kBadParam;
}

DnnStatus FinalizePack(const Descriptor& pack) {
  const auto ids = pack.attributes.find(DnnAttribute::kPackIds);
  const auto places = pack.attributes.find(DnnAttribute::kPackPointers);
  if (ids == pack.attributes.end() || places == pack.attributes.end()) return DnnStatus::kBadParam;
  return ids->second.count == places->second.count ? DnnStatus::kSuccess : DnnStatus::kBadParam;
}

DnnStatus CheckComplete(const Descriptor& descriptor) {
  DnnTensor tensor;
  switch (descriptor.kind) {
    case DnnKind::kTensor:
      return TensorOf(descriptor, &tensor) ? DnnStatus::kSuccess : DnnStatus::kBadParam;
    case DnnKind::kMatmulOperation:
    case DnnKind::kPointwiseOperation:
    case DnnKind::kReductionOperation:
    case DnnKind::kReshapeOperation:
      return FinalizeOperation(descriptor);
    case DnnKind::kGraph:
      return FinalizeGraph(descriptor);
    case DnnKind::kEngineHeuristic:
      return Finalized(descriptor, DnnAttribute::kHeuristicGraph, DnnKind::kGraph) != nullptr
                 ? DnnStatus::kSuccess
                 : DnnStatus::kBadParam;
    case DnnKind::kExecutionPlan:
      return Finalized(descriptor, DnnAttribute::kPlanConfig, DnnKind::kEngineConfig) != nullptr &&
                     descriptor.attributes.contains(DnnAttribute::kPlanHandle)
                 ? DnnStatus::kSuccess
                 : DnnStatus::kBadParam;
    case DnnKind::kVariantPack:
      return FinalizePack(descriptor);
    default:
      return DnnStatus::kSuccess;
  }
}

// The graph of a heuristic, a configuration or a plan.
const Descriptor* GraphOf(const Descriptor& descriptor) {
  if (descriptor.kind == DnnKind::kExecutionPlan) {
    return GraphOf(*Finalized(descriptor, DnnAttribute::kPlanConfig, DnnKind::kEngineConfig));
  }
  return Finalized(descriptor, DnnAttribute::kHeuristicGraph, DnnKind::kGraph);
}

// Answers with a configuration or an engine, for the same graph as `from`.
void Answer(const Descriptor& from, DnnDescriptor to) {
  Of(to)->attributes[DnnAttribute::kHeuristicGraph] =
      from.attributes.at(DnnAttribute::kHeuristicGraph);
  Of(to)->finalized = true;
}

template <typename T>
DnnStatus Answer(const std::vector<T>& values, int64_t most, int64_t* count, void* to) {
  *count = static_cast<int64_t>(values.size());
  const int64_t copied = std::min(most, *count);
  std::memcpy(to, values.data(), static_cast<size_t>(copied) * sizeof(T));
  return DnnStatus::kSuccess;
}

DnnStatus GetAttribute(const Descriptor& from, DnnAttribute name, int64_t most, int64_t* count,
                       void* to) {
  std::vector<DnnOperation> operations;
  switch (name) {
    case DnnAttribute::kHeuristicResults: {
      OperationsOf(*GraphOf(from), &operations);
      *count = HasEngine(operations) ? 1 : 0;
      if (*count > 0 && most > 0) Answer(from, *static_cast<DnnDescriptor*>(to));
      return DnnStatus::kSuccess;
    }
    case DnnAttribute::kConfigEngine:
      *count = 1;
      Answer(from, *static_cast<DnnDescriptor*>(to));
      return DnnStatus::kSuccess;
    case DnnAttribute::kEngineIndex:
      return Answer<int64_t>({kEngine}, most, count, to);
    case DnnAttribute::kEngineNotes:
      return ThisNode().attention_says_nondeterministic
                 ? Answer<DnnNote>({DnnNote::kNondeterministic}, most, count, to)
                 : Answer<DnnNote>({}, most, count, to);
    case DnnAttribute::kPlanWorkspaceBytes:
      OperationsOf(*GraphOf(from), &operations);
      return Answer<int64_t>({WorkspaceOf(operations)}, most, count, to);
    default:
      return DnnStatus::kNotSupported;  // not supported by this double
  }
}

CUresult RunQueued(void* data) {
  const std::unique_ptr<DnnRun> run(static_cast<DnnRun*>(data));
  return RunGraph(*run, *FindHooks());
}

// The memory and values that a plan runs with. False: a tensor has no place.
bool Bind(const Descriptor& pack, DnnRun* run) {
  const Attribute& ids = pack.attributes.at(DnnAttribute::kPackIds);
  std::vector<int64_t> id(static_cast<size_t>(ids.count));
  std::vector<void*> place(id.size());
  if (!Read(pack, DnnAttribute::kPackIds, DnnType::kInt64, id.data(), ids.count) ||
      !Read(pack, DnnAttribute::kPackPointers, DnnType::kPointer, place.data(), ids.count)) {
    return false;
  }
  for (size_t i = 0; i < id.size(); ++i) run->places[id[i]] = place[i];
  for (const DnnOperation& operation : run->operations) {
    for (const DnnTensor* const tensor :
         {&operation.x, &operation.b, &operation.choose, &operation.y}) {
      if (tensor->id == 0 || tensor->is_virtual) continue;
      const auto found = run->places.find(tensor->id);
      constexpr uintptr_t kAlignment = 16;
      if (found == run->places.end() || found->second == nullptr) return false;
      if (tensor->by_value) {
        std::memcpy(&run->values[tensor->id], found->second, sizeof(float));
      } else if (reinterpret_cast<uintptr_t>(found->second) % kAlignment != 0) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace
}  // namespace geminid::gpu_double

#define GEMINID_EXPORT extern "C" __attribute__((visibility("default")))
using namespace geminid::gpu_double;  // NOLINT: this file is one library
using namespace geminid::gpu;         // NOLINT

// The names are the real library's.
// NOLINTBEGIN(readability-identifier-naming)
GEMINID_EXPORT size_t cudnnGetVersion() { return kVersion; }
GEMINID_EXPORT const char* cudnnGetErrorString(DnnStatus status) {
  switch (status) {
    case DnnStatus::kSuccess:
      return "CUDNN_STATUS_SUCCESS";
    case DnnStatus::kNotInitialized:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case DnnStatus::kBadParam:
      return "CUDNN_STATUS_BAD_PARAM";
    case DnnStatus::kNotSupported:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case DnnStatus::kInternalError:
      return "CUDNN_STATUS_INTERNAL_ERROR";
    case DnnStatus::kExecutionFailed:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
  return "CUDNN_UNKNOWN_STATUS";
}

GEMINID_EXPORT DnnStatus cudnnCreate(DnnHandle* handle) {
  if (const DnnStatus fault = Pass(kDnnIndex_create); fault != DnnStatus::kSuccess) return fault;
  const Hooks* const hooks = FindHooks();
  if (hooks == nullptr || hooks->current_device() < 0) return DnnStatus::kNotInitialized;
  *handle = new DnnHandleTag;
  return DnnStatus::kSuccess;
}
GEMINID_EXPORT DnnStatus cudnnDestroy(DnnHandle handle) {
  if (const DnnStatus fault = Pass(kDnnIndex_destroy); fault != DnnStatus::kSuccess) return fault;
  delete handle;
  return DnnStatus::kSuccess;
}
GEMINID_EXPORT DnnStatus cudnnSetStream(DnnHandle handle, CUstream stream) {
  const DnnStatus fault = Pass(kDnnIndex_set_stream);
  if (fault == DnnStatus::kSuccess) handle->stream = stream;
  return fault;
}

GEMINID_EXPORT DnnStatus cudnnBackendCreateDescriptor(DnnKind kind, DnnDescriptor* descriptor) {
  const DnnStatus fault = Pass(kDnnIndex_descriptor_create);
  if (fault == DnnStatus::kSuccess) *descriptor = new Descriptor{.kind = kind};
  return fault;
}
GEMINID_EXPORT DnnStatus cudnnBackendDestroyDescriptor(DnnDescriptor descriptor) {
  const DnnStatus fault = Pass(kDnnIndex_descriptor_destroy);
  if (fault == DnnStatus::kSuccess) delete Of(descriptor);
  return fault;
}
GEMINID_EXPORT DnnStatus cudnnBackendSetAttribute(DnnDescriptor descriptor, DnnAttribute name,
                                                  DnnType type, int64_t count, const void* values) {
  if (const DnnStatus fault = Pass(kDnnIndex_set); fault != DnnStatus::kSuccess) return fault;
  if (descriptor == nullptr || values == nullptr || count <= 0) return DnnStatus::kBadParam;
  if (Of(descriptor)->finalized) return DnnStatus::kBadParam;
  Attribute& attribute = Of(descriptor)->attributes[name];
  attribute = {.type = type, .count = count, .bytes = {}};
  attribute.bytes.resize(static_cast<size_t>(count) * BytesOf(type));
  std::memcpy(attribute.bytes.data(), values, attribute.bytes.size());
  return DnnStatus::kSuccess;
}
GEMINID_EXPORT DnnStatus cudnnBackendGetAttribute(DnnDescriptor descriptor, DnnAttribute name,
                                                  DnnType /*type*/, int64_t most, int64_t* count,
                                                  void* to) {
  if (const DnnStatus fault = Pass(kDnnIndex_get); fault != DnnStatus::kSuccess) return fault;
  if (descriptor == nullptr || !Of(descriptor)->finalized) return DnnStatus::kBadParam;
  return GetAttribute(*Of(descriptor), name, most, count, to);
}
GEMINID_EXPORT DnnStatus cudnnBackendFinalize(DnnDescriptor descriptor) {
  if (const DnnStatus fault = Pass(kDnnIndex_finalize); fault != DnnStatus::kSuccess) return fault;
  if (descriptor == nullptr) return DnnStatus::kBadParam;
  const DnnStatus status = CheckComplete(*Of(descriptor));
  Of(descriptor)->finalized = status == DnnStatus::kSuccess;
  return status;
}

#ifdef GEMINID_CUDNN_LACKS_EXECUTE
#define cudnnBackendExecute cudnnBackendExecuteOfAnotherName
#endif
GEMINID_EXPORT DnnStatus cudnnBackendExecute(DnnHandle handle, DnnDescriptor plan,
                                             DnnDescriptor pack) {
  if (const DnnStatus fault = Pass(kDnnIndex_execute); fault != DnnStatus::kSuccess) return fault;
  if (handle == nullptr || !Of(plan)->finalized || !Of(pack)->finalized) {
    return DnnStatus::kBadParam;
  }
  auto run = std::make_unique<DnnRun>();
  run->wrong_tensor = ThisNode().attention_wrong_tensor;
  run->drifting_tensor = ThisNode().attention_drifting_tensor;
  void* workspace = nullptr;
  if (!OperationsOf(*GraphOf(*Of(plan)), &run->operations) || !Bind(*Of(pack), run.get()) ||
      !Read(*Of(pack), DnnAttribute::kPackWorkspace, DnnType::kPointer, &workspace)) {
    return DnnStatus::kBadParam;
  }
  const auto bytes = static_cast<size_t>(WorkspaceOf(run->operations));
  if (FindHooks()->mirror(workspace, bytes, true) == nullptr) return DnnStatus::kBadParam;
  if (FindHooks()->enqueue(handle->stream, RunQueued, run.get()) != CUDA_SUCCESS) {
    return DnnStatus::kExecutionFailed;
  }
  run.release();  // RunQueued owns it
  return DnnStatus::kSuccess;
}
// NOLINTEND(readability-identifier-naming)
