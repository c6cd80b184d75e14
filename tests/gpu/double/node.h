// The test's side of the double: GPUs that are not there, and what goes wrong with them.
#ifndef GEMINID_TESTS_GPU_DOUBLE_NODE_H_
#define GEMINID_TESTS_GPU_DOUBLE_NODE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gpu/driver_api.h"
#include "tests/gpu/double/node_file.h"

namespace geminid::gpu_double {

struct NodeOptions {
  int devices = 1;
  uint64_t memory_bytes = uint64_t{1} << 30;  // of each
  // The first GPU is divided into so many, of equal shares of its memory (MIG). They are devices
  // `devices` and on in the calls below; 0: it is whole.
  int instances = 0;
  // Paths of the shared objects; an empty one leaves its variable alone.
  std::string libcuda = {};
  std::string libnvml = {};
  std::string kernels = {};
  // Empty ones keep programs from taking the machine's own, which knows no double.
  std::string libcublaslt = {};
  std::string libcudnn = {};
  std::string libnccl = {};
};

// GPUs for this process and those that it starts, from here on: it sets the variables of the
// environment that lead to the double and to its own file. One at a time; the double of a process
// keeps the node that it first saw, so a process that loads the double makes its node before that.
// Every change holds at once, for all processes. Thread-safe.
class Node {
 public:
  explicit Node(const NodeOptions& options);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // removes the file, and the variables

  // Of all processes together.
  uint64_t used_bytes(int device) const;
  // That copies have brought from the device to host memory.
  uint64_t bytes_to_host(int device) const;
  void SetMemoryBytes(int device, uint64_t bytes);

  // Over the link, in each direction. 0: as fast as memcpy.
  void SetCopySpeed(int device, uint64_t bytes_per_second, uint64_t latency_ns = 0);
  // While held, no work that is queued on the device begins.
  void Hold(int device, bool held);
  // As when it falls off the bus: calls that use it fail, and so does NVML. With its instances.
  void SetLost(int device, bool lost);

  // What NVML says of the GPU's memory.
  void SetUncorrectedErrors(int device, uint64_t since_load, uint64_t ever);
  void SetRetiredPagesPending(int device, bool pending);
  void SetRowRemaps(int device, bool pending, bool failed);
  // An event for whoever watches now; of all of the GPU, or of one of its instances, from 0.
  void RaiseXid(int device, uint32_t xid, std::optional<uint32_t> instance = std::nullopt);
  // NVML says nothing of all that, and has no events.
  void SetSaysNoHealth(bool none);

  // Calls of `function`, by its name in the driver, do not return until this is taken away.
  void Hang(std::string_view function);
  // After `skips` more calls, `times` of them return `result` and do nothing else.
  void Fail(std::string_view function, CUresult result, int64_t skips = 0, int64_t times = 1);
  // The same of a library of the driver's, with an error of its own.
  void FailLibrary(std::string_view function, int result, int64_t skips = 0, int64_t times = 1);
  // Of Hang alone; the others stay.
  void EndHang(std::string_view function);
  void ClearFaults();

  void SetFreshByte(int byte);  // what new memory holds; 0 at first
  void SetCreateNeedsContext(bool needs);
  void SetNoStreamMemoryOperations(bool none);
  // Whether a descriptor is of use only while the process that made its memory lives (G2 answered
  // with no). Who has imported it before keeps it.
  void SetMemoryGoesWithExporter(bool goes);
  // Whether NCCL takes memory of the host that nobody has registered, as with HMM.
  void SetPageableMemoryAccess(bool access);
  // Of the attention of cuDNN, by the numbers that tensors have in its graph: a value of one that
  // is written is wrong, or one has other bits in every second run; 0: none.
  void SetAttentionWrong(int64_t tensor);
  void SetAttentionDrifting(int64_t tensor);
  // So many times the workspace that it has to take; 1 at first.
  void SetAttentionWorkspaceFactor(int factor);
  void SetAttentionSaysNondeterministic(bool says);
  void SetDriverVersion(int version);  // 12080 at first; functions that are newer are not there

  // How often `function` was called, by all processes.
  uint64_t calls(std::string_view function) const;

  const std::string& path() const { return path_; }

 private:
  Fault* NewFault(std::string_view function);

  std::string path_;
  NodeFile* file_ = nullptr;
};

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_NODE_H_
