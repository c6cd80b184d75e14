// The state of the double's GPUs that all processes of one test share: a small file, which each
// maps. Tests change it through Node (node.h) at any time; the double reads it at each call.
//
// Memory in use is not in this file. It is counted from the descriptors that processes hold, so
// that it is right after any kill (memory.h).
#ifndef GEMINID_TESTS_GPU_DOUBLE_NODE_FILE_H_
#define GEMINID_TESTS_GPU_DOUBLE_NODE_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace geminid::gpu_double {

inline constexpr char kNodeFileVariable[] = "GEMINID_GPU_DOUBLE";
inline constexpr char kKernelsVariable[] = "GEMINID_GPU_DOUBLE_KERNELS";

inline constexpr int kMostDevices = 8;
inline constexpr int kMostFaults = 16;
inline constexpr int kMostFunctions = 128;
inline constexpr int kMostXids = 16;
inline constexpr size_t kNameBytes = 48;
inline constexpr uint64_t kGranularityBytes = uint64_t{2} << 20;
inline constexpr uint64_t kNodeMagic = 0x67656d696e692d36;
inline constexpr int kWholeGpu = -1;

enum class FaultKind : int { kNone, kFail, kHang };

// An Xid event that the driver reports.
struct Xid {
  std::atomic<uint32_t> number;
  std::atomic<uint32_t> instance;  // of the GPU; all ones: the whole GPU
};

// A fault: what the next calls of one function do instead.
struct Fault {
  char function[kNameBytes];
  std::atomic<FaultKind> kind;
  std::atomic<int> result;     // of kFail
  std::atomic<int64_t> skips;  // calls before the first that fails
  std::atomic<int64_t> times;  // calls that fail; kHang: until it is removed
};

struct DeviceState {
  std::atomic<uint64_t> memory_bytes;
  std::atomic<uint64_t> used_at_most_bytes;     // upper bound: last count, and memory made since
  std::atomic<uint64_t> copy_bytes_per_second;  // of each direction over the link; 0: no limit
  std::atomic<uint64_t> copy_latency_ns;
  std::atomic<uint64_t> bytes_to_host;  // that copies have brought down
  std::atomic<bool> lost;
  std::atomic<bool> held;    // no queued work begins
  std::atomic<int> part_of;  // the GPU whose instance it is (MIG); kWholeGpu
  // The GPU's health by NVML.
  std::atomic<uint64_t> volatile_errors;  // not corrected
  std::atomic<uint64_t> aggregate_errors;
  std::atomic<bool> retired_pages_pending;
  std::atomic<bool> row_remap_pending;
  std::atomic<bool> row_remap_failed;
  std::atomic<uint64_t> xids;  // reported so far; `xid` has the last of them
  Xid xid[kMostXids];
};

struct NodeFile {
  uint64_t magic;
  uint64_t id;                 // part of the names of its memory
  std::atomic<int> devices;    // GPUs
  std::atomic<int> instances;  // of divided GPUs; in `device` they come after the GPUs
  std::atomic<int> driver_version;
  std::atomic<int> fresh_byte;  // what new memory holds
  std::atomic<bool> create_needs_context;
  std::atomic<bool> no_stream_memory_operations;
  std::atomic<bool> memory_goes_with_exporter;
  std::atomic<bool> pageable_memory_access;  // GPUs can access all memory of a process
  std::atomic<bool> says_no_health;          // for GPUs without ECC, and drivers without events
  std::atomic<uint64_t> serial;              // of memory
  // Faults of cuDNN's attention.
  std::atomic<int64_t> attention_wrong_tensor;     // by its number in the graph; 0: none
  std::atomic<int64_t> attention_drifting_tensor;  // its bits differ between runs
  std::atomic<int> attention_workspace_factor;     // times the workspace that it needs
  std::atomic<bool> attention_says_nondeterministic;
  DeviceState device[kMostDevices];
  Fault fault[kMostFaults];
  std::atomic<uint64_t> calls[kMostFunctions];  // in the order of functions.h
};

// Eight GPUs of 1 GiB, of which `devices` exist, undivided and without faults.
void Initialise(NodeFile* node, int devices);

// The file of this process: the one that the variable names, or its own with one GPU. Never null;
// ends the process if the file cannot be read.
NodeFile& ThisNode();

// Keeps other processes of the node, and other threads, from creating memory while it lives.
class NodeLock {
 public:
  NodeLock();
  NodeLock(const NodeLock&) = delete;
  NodeLock& operator=(const NodeLock&) = delete;
  ~NodeLock();
};

// Devices are numbered: first GPUs, then instances.
int DeviceCount(const NodeFile& node);
// The device itself, or the GPU whose instance it is.
int GpuOf(const NodeFile& node, int device);
bool IsInstance(const NodeFile& node, int device);
// A GPU's instances, in order; empty: the GPU is not divided.
std::vector<int> InstancesOf(const NodeFile& node, int gpu);

inline constexpr char kDeviceName[] = "Geminid driver double (not a GPU)";

// The names in CUDA and NVML: "GPU-" and a UUID for GPU `gpu`; "MIG-" and an own UUID for instance
// `instance`; and either of them for a device.
std::string UuidOf(int gpu);
std::string InstanceUuidOf(int instance);
std::string UuidOf(const NodeFile& node, int device);
std::string NameOf(const NodeFile& node, int device);
std::string PciBusIdOf(int gpu);

// Bytes of the device's memory for which any process of the machine has a descriptor; for a divided
// GPU, the sum over its instances.
uint64_t UsedBytes(const NodeFile& node, int device);

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_NODE_FILE_H_
