#include "kernels/runtime/cuda/dnn_graph.h"

#include <algorithm>

namespace geminid::kernels {
namespace {

using gpu::DnnAttribute;
using gpu::DnnData;
using gpu::DnnDescriptor;
using gpu::DnnKind;
using gpu::DnnStatus;
using gpu::DnnType;

constexpr int64_t kTensorAlignment = 16;  // for vector loads of the library's kernels
constexpr int64_t kConfigsMost = 16;      // proposals of the library that are tried

DnnGraph::Dims DenseStrides(const DnnGraph::Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

}  // namespace

DnnDescriptors::~DnnDescriptors() {
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) api_.descriptor_destroy(*made);
}

void DnnDescriptors::Check(DnnStatus status, const std::string& what) {
  if (status != DnnStatus::kSuccess) error_ = what + ": " + api_.status_string(status);
}

DnnDescriptor DnnDescriptors::Make(DnnKind kind) {
  if (!ok()) return nullptr;
  DnnDescriptor made = nullptr;
  Check(api_.descriptor_create(kind, &made), "cudnnBackendCreateDescriptor");
  if (!ok()) return nullptr;
  made_.push_back(made);
  return made;
}

void DnnDescriptors::Set(DnnDescriptor descriptor, DnnAttribute attribute, DnnType type,
                         int64_t count, const void* values) {
  if (!ok()) return;
  Check(api_.set(descriptor, attribute, type, count, values),
        "cudnnBackendSetAttribute of attribute " + std::to_string(static_cast<int>(attribute)));
}

void DnnDescriptors::Finalize(DnnDescriptor descriptor, const char* what) {
  if (ok()) Check(api_.finalize(descriptor), std::string("cudnnBackendFinalize of ") + what);
}

DnnGraph::Tensor DnnGraph::Make(int64_t id, DnnData type, const Dims& dims, const Dims& strides,
                                bool is_virtual, bool by_value) {
  const DnnDescriptor tensor = all_.Make(DnnKind::kTensor);
  const auto rank = static_cast<int64_t>(dims.size());
  all_.Set(tensor, DnnAttribute::kTensorType, DnnType::kDataType, type);
  all_.Set(tensor, DnnAttribute::kTensorDimensions, DnnType::kInt64, rank, dims.data());
  all_.Set(tensor, DnnAttribute::kTensorStrides, DnnType::kInt64, rank, strides.data());
  all_.Set(tensor, DnnAttribute::kTensorId, DnnType::kInt64, id);
  all_.Set(tensor, DnnAttribute::kTensorAlignment, DnnType::kInt64, kTensorAlignment);
  all_.Set(tensor, DnnAttribute::kTensorIsVirtual, DnnType::kBoolean, is_virtual);
  all_.Set(tensor, DnnAttribute::kTensorIsByValue, DnnType::kBoolean, by_value);
  all_.Finalize(tensor, "a tensor");
  return {.descriptor = tensor, .dims = dims};
}

DnnGraph::Tensor DnnGraph::InMemory(int64_t id, DnnData type, const Dims& dims,
                                    const Dims& strides) {
  return Make(id, type, dims, strides, /*is_virtual=*/false, /*by_value=*/false);
}
DnnGraph::Tensor DnnGraph::ByValue(int64_t id) {
  return Make(id, DnnData::kFp32, {1, 1, 1, 1}, {1, 1, 1, 1}, /*is_virtual=*/false,
              /*by_value=*/true);
}
DnnGraph::Tensor DnnGraph::Between(const Dims& dims, DnnData type) {
  return Between(dims, DenseStrides(dims), type);
}
DnnGraph::Tensor DnnGraph::Between(const Dims& dims, const Dims& strides, DnnData type) {
  return Make(next_id_++, type, dims, strides, /*is_virtual=*/true, /*by_value=*/false);
}

void DnnGraph::AddOperation(DnnDescriptor operation, const char* what) {
  all_.Finalize(operation, what);
  operations_.push_back(operation);
}

void DnnGraph::Multiply(const Tensor& a, const Tensor& b, const Tensor& c) {
  const DnnDescriptor product = all_.Make(DnnKind::kMatmul);
  all_.Set(product, DnnAttribute::kMatmulComputeType, DnnType::kDataType, DnnData::kFp32);
  all_.Finalize(product, "a product");
  const DnnDescriptor operation = all_.Make(DnnKind::kMatmulOperation);
  all_.Set(operation, DnnAttribute::kMatmulA, DnnType::kDescriptor, a.descriptor);
  all_.Set(operation, DnnAttribute::kMatmulB, DnnType::kDescriptor, b.descriptor);
  all_.Set(operation, DnnAttribute::kMatmulC, DnnType::kDescriptor, c.descriptor);
  all_.Set(operation, DnnAttribute::kMatmulDescriptor, DnnType::kDescriptor, product);
  AddOperation(operation, "a product's operation");
}

DnnDescriptor DnnGraph::Pointwise(gpu::DnnPointwise mode, DnnData compute, int64_t axis) {
  const DnnDescriptor pointwise = all_.Make(DnnKind::kPointwise);
  all_.Set(pointwise, DnnAttribute::kPointwiseMode, DnnType::kPointwiseMode, mode);
  all_.Set(pointwise, DnnAttribute::kPointwiseComputeType, DnnType::kDataType, compute);
  if (axis >= 0) all_.Set(pointwise, DnnAttribute::kPointwiseAxis, DnnType::kInt64, axis);
  all_.Finalize(pointwise, "a pointwise operation");
  const DnnDescriptor operation = all_.Make(DnnKind::kPointwiseOperation);
  all_.Set(operation, DnnAttribute::kPointwiseDescriptor, DnnType::kDescriptor, pointwise);
  return operation;
}

void DnnGraph::Apply(gpu::DnnPointwise mode, const Tensor& x, const Tensor* b, const Tensor& y,
                     DnnData compute, const Tensor* choose) {
  const DnnDescriptor operation = Pointwise(mode, compute);
  const auto set = [&](DnnAttribute attribute, const Tensor& tensor) {
    all_.Set(operation, attribute, DnnType::kDescriptor, tensor.descriptor);
  };
  set(DnnAttribute::kPointwiseX, x);
  set(DnnAttribute::kPointwiseY, y);
  if (b != nullptr) set(DnnAttribute::kPointwiseB, *b);
  if (choose != nullptr) set(DnnAttribute::kPointwiseT, *choose);
  AddOperation(operation, "a pointwise operation's operands");
}

void DnnGraph::Index(const Tensor& like, int64_t axis, const Tensor& y) {
  const DnnDescriptor operation = Pointwise(gpu::DnnPointwise::kIndex, DnnData::kFp32, axis);
  all_.Set(operation, DnnAttribute::kPointwiseX, DnnType::kDescriptor, like.descriptor);
  all_.Set(operation, DnnAttribute::kPointwiseY, DnnType::kDescriptor, y.descriptor);
  AddOperation(operation, "an index");
}

void DnnGraph::Reduce(gpu::DnnReduce op, const Tensor& x, const Tensor& y) {
  const DnnDescriptor reduction = all_.Make(DnnKind::kReduction);
  all_.Set(reduction, DnnAttribute::kReductionOperator, DnnType::kReductionOperator, op);
  all_.Set(reduction, DnnAttribute::kReductionComputeType, DnnType::kDataType, DnnData::kFp32);
  all_.Finalize(reduction, "a reduction");
  const DnnDescriptor operation = all_.Make(DnnKind::kReductionOperation);
  all_.Set(operation, DnnAttribute::kReductionX, DnnType::kDescriptor, x.descriptor);
  all_.Set(operation, DnnAttribute::kReductionY, DnnType::kDescriptor, y.descriptor);
  all_.Set(operation, DnnAttribute::kReductionDescriptor, DnnType::kDescriptor, reduction);
  AddOperation(operation, "a reduction's operation");
}

void DnnGraph::Reshape(const Tensor& x, const Tensor& y) {
  const DnnDescriptor operation = all_.Make(DnnKind::kReshapeOperation);
  all_.Set(operation, DnnAttribute::kReshapeX, DnnType::kDescriptor, x.descriptor);
  all_.Set(operation, DnnAttribute::kReshapeY, DnnType::kDescriptor, y.descriptor);
  AddOperation(operation, "a reshape");
}

bool DnnGraph::Plan(const Target& target, std::string* why) {
  const DnnDescriptor graph = all_.Make(DnnKind::kGraph);
  all_.Set(graph, DnnAttribute::kGraphOperations, DnnType::kDescriptor,
           static_cast<int64_t>(operations_.size()), static_cast<const void*>(operations_.data()));
  if (target.handle != nullptr) {
    all_.Set(graph, DnnAttribute::kGraphHandle, DnnType::kHandle, target.handle);
  }
  all_.Finalize(graph, "the graph");
  *why = "no engine takes the graph";
  if (all_.ok()) {
    for (const auto mode : {gpu::DnnHeuristic::kA, gpu::DnnHeuristic::kFallback}) {
      if (!PlanBy(mode, graph, target, why)) continue;
      why->clear();
      return true;
    }
  }
  if (!all_.ok()) *why = all_.error();
  return false;
}

bool DnnGraph::PlanBy(gpu::DnnHeuristic mode, DnnDescriptor graph, const Target& target,
                      std::string* why) {
  DnnDescriptors asked(all_.api());  // an error here is that of one proposal
  const DnnDescriptor heuristic = asked.Make(DnnKind::kEngineHeuristic);
  asked.Set(heuristic, DnnAttribute::kHeuristicGraph, DnnType::kDescriptor, graph);
  asked.Set(heuristic, DnnAttribute::kHeuristicMode, DnnType::kHeuristicMode, mode);
  if (target.properties != nullptr) {
    asked.Set(heuristic, DnnAttribute::kHeuristicDeviceProperties, DnnType::kDescriptor,
              target.properties);
  }
  asked.Finalize(heuristic, "the choice of an engine");
  std::array<DnnDescriptor, kConfigsMost> configs = {};
  for (DnnDescriptor& config : configs) config = all_.Make(DnnKind::kEngineConfig);
  if (!asked.ok() || !all_.ok()) {
    if (!asked.ok()) *why = asked.error();
    return false;
  }
  int64_t count = 0;
  if (all_.api().get(heuristic, DnnAttribute::kHeuristicResults, DnnType::kDescriptor, kConfigsMost,
                     &count, static_cast<void*>(configs.data())) != DnnStatus::kSuccess) {
    return false;
  }
  count = std::clamp<int64_t>(count, 0, kConfigsMost);
  return std::any_of(configs.begin(), configs.begin() + count,
                     [&](DnnDescriptor config) { return Take(config, target, why); });
}

bool DnnGraph::Take(DnnDescriptor config, const Target& target, std::string* why) {
  const gpu::CudnnApi& api = all_.api();
  DnnDescriptors asked(api);
  DnnDescriptor engine = asked.Make(DnnKind::kEngine);
  std::array<gpu::DnnNote, gpu::kDnnNotes> notes = {};
  int64_t count = 0;
  if (!asked.ok() ||
      api.get(config, DnnAttribute::kConfigEngine, DnnType::kDescriptor, 1, &count,
              static_cast<void*>(&engine)) != DnnStatus::kSuccess ||
      api.get(engine, DnnAttribute::kEngineIndex, DnnType::kInt64, 1, &count, &engine_) !=
          DnnStatus::kSuccess ||
      api.get(engine, DnnAttribute::kEngineNotes, DnnType::kNumericalNote, gpu::kDnnNotes, &count,
              notes.data()) != DnnStatus::kSuccess) {
    *why = "an engine does not say how it computes";
    return false;
  }
  const auto end = notes.begin() + std::clamp<int64_t>(count, 0, gpu::kDnnNotes);
  if (std::find(notes.begin(), end, gpu::DnnNote::kNondeterministic) != end) {
    *why = "engine " + std::to_string(engine_) + " says that it is not deterministic";
    return false;
  }
  const DnnDescriptor plan = all_.Make(DnnKind::kExecutionPlan);
  if (!all_.ok()) return false;
  DnnStatus status = target.handle != nullptr
                         ? api.set(plan, DnnAttribute::kPlanHandle, DnnType::kHandle, 1,
                                   static_cast<const void*>(&target.handle))
                         : api.set(plan, DnnAttribute::kPlanDeviceProperties, DnnType::kDescriptor,
                                   1, static_cast<const void*>(&target.properties));
  if (status == DnnStatus::kSuccess) {
    status = api.set(plan, DnnAttribute::kPlanConfig, DnnType::kDescriptor, 1,
                     static_cast<const void*>(&config));
  }
  if (status == DnnStatus::kSuccess) status = api.finalize(plan);
  int64_t bytes = -1;
  if (status == DnnStatus::kSuccess) {
    status = api.get(plan, DnnAttribute::kPlanWorkspaceBytes, DnnType::kInt64, 1, &count, &bytes);
  }
  if (status != DnnStatus::kSuccess || bytes < 0) {
    *why = "a plan for engine " + std::to_string(engine_) + ": " + api.status_string(status);
    return false;
  }
  plan_ = plan;
  workspace_bytes_ = static_cast<uint64_t>(bytes);
  return true;
}

bool DnnGraph::Run(gpu::DnnHandle handle, std::span<const std::pair<int64_t, void*>> tensors,
                   void* workspace, CudaStream stream, std::string* why) {
  std::vector<int64_t> ids;
  std::vector<void*> places;
  for (const auto& [id, place] : tensors) {
    ids.push_back(id);
    places.push_back(place);
  }
  const gpu::CudnnApi& api = all_.api();
  DnnDescriptors asked(api);
  const auto count = static_cast<int64_t>(ids.size());
  const DnnDescriptor pack = asked.Make(DnnKind::kVariantPack);
  asked.Set(pack, DnnAttribute::kPackIds, DnnType::kInt64, count, ids.data());
  asked.Set(pack, DnnAttribute::kPackPointers, DnnType::kPointer, count,
            static_cast<const void*>(places.data()));
  asked.Set(pack, DnnAttribute::kPackWorkspace, DnnType::kPointer, workspace);
  asked.Finalize(pack, "a variant pack");
  if (!asked.ok()) {
    *why = asked.error();
    return false;
  }
  DnnStatus status = api.set_stream(handle, stream);
  const char* what = "cudnnSetStream: ";
  if (status == DnnStatus::kSuccess) {
    status = api.execute(handle, plan_, pack);
    what = "cudnnBackendExecute: ";
  }
  if (status != DnnStatus::kSuccess) *why = std::string(what) + api.status_string(status);
  return status == DnnStatus::kSuccess;
}

}  // namespace geminid::kernels
