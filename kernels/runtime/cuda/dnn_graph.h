// A graph of operations for cuDNN, and cuDNN's plan for it. All tensors have four dimensions:
// batch, head, token, element.
#ifndef GEMINID_KERNELS_RUNTIME_CUDA_DNN_GRAPH_H_
#define GEMINID_KERNELS_RUNTIME_CUDA_DNN_GRAPH_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpu/cudnn_api.h"
#include "kernels/runtime/cuda/stream.h"

namespace geminid::kernels {

// Owns descriptors. `api` outlives it.
class DnnDescriptors {
 public:
  explicit DnnDescriptors(const gpu::CudnnApi& api) : api_(api) {}
  DnnDescriptors(const DnnDescriptors&) = delete;
  DnnDescriptors& operator=(const DnnDescriptors&) = delete;
  ~DnnDescriptors();

  // Null after an error. After the first error cuDNN is not called any more.
  gpu::DnnDescriptor Make(gpu::DnnKind kind);
  void Set(gpu::DnnDescriptor descriptor, gpu::DnnAttribute attribute, gpu::DnnType type,
           int64_t count, const void* values);
  template <typename T>
  void Set(gpu::DnnDescriptor descriptor, gpu::DnnAttribute attribute, gpu::DnnType type,
           const T& value) {
    Set(descriptor, attribute, type, 1, static_cast<const void*>(&value));
  }
  void Finalize(gpu::DnnDescriptor descriptor, const char* what);

  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  const gpu::CudnnApi& api() const { return api_; }

 private:
  void Check(gpu::DnnStatus status, const std::string& what);

  const gpu::CudnnApi& api_;
  std::vector<gpu::DnnDescriptor> made_;
  std::string error_;
};

class DnnGraph {
 public:
  using Dims = std::array<int64_t, 4>;
  struct Tensor {
    gpu::DnnDescriptor descriptor = nullptr;
    Dims dims = {};
  };

  explicit DnnGraph(const gpu::CudnnApi& api) : all_(api) {}

  // A tensor in device memory, 16-byte aligned. Run maps its `id`, which is not 0, to an address.
  Tensor InMemory(int64_t id, gpu::DnnData type, const Dims& dims, const Dims& strides);
  // One fp32 number in host memory.
  Tensor ByValue(int64_t id);
  // A dense tensor between two operations, which has no memory.
  Tensor Between(const Dims& dims, gpu::DnnData type = gpu::DnnData::kFp32);
  Tensor Between(const Dims& dims, const Dims& strides, gpu::DnnData type);

  // c = a b for each head; several heads share those of an operand with fewer heads.
  void Multiply(const Tensor& a, const Tensor& b, const Tensor& c);
  // y = x op b, or the one-operand forms; with `choose`: choose ? x : b.
  void Apply(gpu::DnnPointwise mode, const Tensor& x, const Tensor* b, const Tensor& y,
             gpu::DnnData compute = gpu::DnnData::kFp32, const Tensor* choose = nullptr);
  void Index(const Tensor& like, int64_t axis, const Tensor& y);
  // Reduces x over the dimensions in which y has one element, or fewer than x.
  void Reduce(gpu::DnnReduce op, const Tensor& x, const Tensor& y);
  void Reshape(const Tensor& x, const Tensor& y);

  // A handle, or the description of a GPU (gpu::DnnKind::kDeviceProperties); the other member is
  // null.
  struct Target {
    gpu::DnnHandle handle = nullptr;
    gpu::DnnDescriptor properties = nullptr;
  };
  // Chooses the engine and its workspace: the first deterministic one that the library proposes,
  // which depends on the graph, the library's version and the GPU. False, with `why` set, if no
  // deterministic engine supports the graph. Call once.
  bool Plan(const Target& target, std::string* why);
  uint64_t workspace_bytes() const { return workspace_bytes_; }
  int64_t engine() const { return engine_; }  // its number in the library

  // Queues the plan on `stream`. The values of ByValue tensors have been read when this returns.
  // `workspace` is 256-byte aligned.
  bool Run(gpu::DnnHandle handle, std::span<const std::pair<int64_t, void*>> tensors,
           void* workspace, CudaStream stream, std::string* why);

 private:
  Tensor Make(int64_t id, gpu::DnnData type, const Dims& dims, const Dims& strides, bool is_virtual,
              bool by_value);
  gpu::DnnDescriptor Pointwise(gpu::DnnPointwise mode, gpu::DnnData compute, int64_t axis = -1);
  void AddOperation(gpu::DnnDescriptor operation, const char* what);
  bool PlanBy(gpu::DnnHeuristic mode, gpu::DnnDescriptor graph, const Target& target,
              std::string* why);
  bool Take(gpu::DnnDescriptor config, const Target& target, std::string* why);

  DnnDescriptors all_;
  std::vector<gpu::DnnDescriptor> operations_;
  int64_t next_id_ = 1000;  // of tensors between operations
  gpu::DnnDescriptor plan_ = nullptr;
  uint64_t workspace_bytes_ = 0;
  int64_t engine_ = -1;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_CUDA_DNN_GRAPH_H_
