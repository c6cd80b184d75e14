// Graphs of operations for cuDNN's double: computes them on the host, one operation at a time.
#ifndef GEMINID_TESTS_GPU_DOUBLE_CUDNN_GRAPH_H_
#define GEMINID_TESTS_GPU_DOUBLE_CUDNN_GRAPH_H_

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "gpu/cudnn_api.h"
#include "tests/gpu/double/hooks.h"

namespace geminid::gpu_double {

struct DnnTensor {
  int64_t id = 0;
  gpu::DnnData type = gpu::DnnData::kFp32;
  std::array<int64_t, 4> dims = {};
  std::array<int64_t, 4> strides = {};
  bool is_virtual = false;
  bool by_value = false;

  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

// The content of an operation's descriptors: its kind, and the tensors it reads and writes.
struct DnnOperation {
  gpu::DnnKind kind = gpu::DnnKind::kMatmulOperation;
  gpu::DnnPointwise pointwise = gpu::DnnPointwise::kAdd;
  gpu::DnnReduce reduce = gpu::DnnReduce::kAdd;
  int64_t axis = 0;
  DnnTensor x, b, choose, y;  // `b` and `choose` where the operation has them: else id 0
};

// Whether the shapes of the operation's tensors match.
bool Fits(const DnnOperation& operation);

// A graph to run, with all its inputs.
struct DnnRun {
  std::vector<DnnOperation> operations;
  std::map<int64_t, void*> places;  // in device memory
  std::map<int64_t, float> values;  // of tensors by value
  int64_t wrong_tensor = 0;         // one of its values is wrong; 0: none
  int64_t drifting_tensor = 0;      // one of its bits differs between runs; 0: none
};

CUresult RunGraph(const DnnRun& run, const Hooks& hooks);

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_CUDNN_GRAPH_H_
