// The test's interface to the double: simulated GPUs and their faults.
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
  // The first GPU is divided into so many instances with equal shares of its memory (MIG). They are
  // devices `devices` and on in the calls below; 0: the GPU is not divided.
  int instances = 0;
  // Paths of the shared objects; an empty path leaves its variable as it is.
  std::string libcuda = {};
  std::string libnvml = {};
  std::string kernels = {};
  // Empty paths keep programs from loading the machine's own library, which knows no double.
  std::string libcublaslt = {};
  std::string libcudnn = {};
  std::string libnccl = {};
};

// Simulated GPUs for this process and those that it starts from now on. It sets the environment
// variables that name the double and the double's file. One at a time. The double of a process
// keeps the node that it saw first, so a process that loads the double makes its node before that.
// Every change holds at once, for all processes. Thread-safe.
class Node {
 public:
  explicit Node(const NodeOptions& options);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // removes the file, and the variables

  // The bytes that all processes together use.
  uint64_t used_bytes(int device) const;
  // The bytes that copies have brought from the device to host memory.
  uint64_t bytes_to_host(int device) const;
  void SetMemoryBytes(int device, uint64_t bytes);

  // The speed of the link, in each direction. 0: as fast as memcpy.
  void SetCopySpeed(int device, uint64_t bytes_per_second, uint64_t latency_ns = 0);
  // While held, the device begins no queued work.
  void Hold(int device, bool held);
  // Loses the GPU, as when it falls off the bus: calls that use it, its instances or NVML fail.
  void SetLost(int device, bool lost);

  // NVML's report of the GPU's memory.
  void SetUncorrectedErrors(int device, uint64_t since_load, uint64_t ever);
  void SetRetiredPagesPending(int device, bool pending);
  void SetRowRemaps(int device, bool pending, bool failed);
  // An event for current watchers; of the whole GPU, or of one of its instances, from 0.
  void RaiseXid(int device, uint32_t xid, std::optional<uint32_t> instance = std::nullopt);
  // With `none`, NVML reports no health and has no events.
  void SetSaysNoHealth(bool none);

  // Calls of `function`, by its name in the driver, do not return until the fault is removed.
  void Hang(std::string_view function);
  // After `skips` more calls, `times` of them return `result` and do nothing else.
  void Fail(std::string_view function, CUresult result, int64_t skips = 0, int64_t times = 1);
  // The same for a driver library, with an error of that library.
  void FailLibrary(std::string_view function, int result, int64_t skips = 0, int64_t times = 1);
  // Ends Hang alone; other faults stay.
  void EndHang(std::string_view function);
  void ClearFaults();

  void SetFreshByte(int byte);  // what new memory holds; 0 at first
  void SetCreateNeedsContext(bool needs);
  void SetNoStreamMemoryOperations(bool none);
  // With `goes`, a descriptor is usable only while the process that made its memory lives (the case
  // that question G2 is answered no). Processes that have imported the memory keep it.
  void SetMemoryGoesWithExporter(bool goes);
  // Whether NCCL accepts host memory that is not registered, as with HMM.
  void SetPageableMemoryAccess(bool access);
  // Faults of cuDNN's attention, by the number of a tensor in its graph. Wrong: one written value
  // is wrong. Drifting: one value has other bits in every second run. 0: no fault.
  void SetAttentionWrong(int64_t tensor);
  void SetAttentionDrifting(int64_t tensor);
  // Multiplies the workspace that cuDNN needs; 1 at first.
  void SetAttentionWorkspaceFactor(int factor);
  void SetAttentionSaysNondeterministic(bool says);
  void SetDriverVersion(int version);  // 12080 at first; newer functions are missing

  // How often all processes have called `function`.
  uint64_t calls(std::string_view function) const;

  const std::string& path() const { return path_; }

 private:
  Fault* NewFault(std::string_view function);

  std::string path_;
  NodeFile* file_ = nullptr;
};

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_NODE_H_
