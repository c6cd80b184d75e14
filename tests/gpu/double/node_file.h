// What all processes of one test share of the double's GPUs: a small file, mapped by each. Tests
// change it through Node (node.h), at any time; the double reads it at each call.
//
// Memory in use is not in here: it is counted from the descriptors that processes hold, so that it
// is right after any kill (memory.h).
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

// One that the driver reports.
struct Xid {
  std::atomic<uint32_t> number;
  std::atomic<uint32_t> instance;  // of the GPU; all ones: of all of it
};

// What the next calls of one function do instead.
struct Fault {
  char function[kNameBytes];
  std::atomic<FaultKind> kind;
  std::atomic<int> result;     // of kFail
  std::atomic<int64_t> skips;  // calls before the first that is hit
  std::atomic<int64_t> times;  // calls that are hit; kHang: until it is taken away
};

struct DeviceState {
  std::atomic<uint64_t> memory_bytes;
  std::atomic<uint64_t> used_at_most_bytes;     // what has been made since it was counted, and that
  std::atomic<uint64_t> copy_bytes_per_second;  // of each direction over the link; 0: no limit
  std::atomic<uint64_t> copy_latency_ns;
  std::atomic<uint64_t> bytes_to_host;  // that copies have brought down
  std::atomic<bool> lost;
  std::atomic<bool> held;    // no queued work begins
  std::atomic<int> part_of;  // the GPU that it is an instance of (MIG); kWholeGpu
  // How the GPU is, by NVML.
  std::atomic<uint64_t> volatile_errors;  // not corrected
  std::atomic<uint64_t> aggregate_errors;
  std::atomic<bool> retired_pages_pending;
  std::atomic<bool> row_remap_pending;
  std::atomic<bool> row_remap_failed;
  std::atomic<uint64_t> xids;  // so many were reported; the last of them are in `xid`
  Xid xid[kMostXids];
};

struct NodeFile {
  uint64_t magic;
  uint64_t id;                 // in the names of its memory
  std::atomic<int> devices;    // GPUs
  std::atomic<int> instances;  // of those that are divided; in `device` they lie behind the GPUs
  std::atomic<int> driver_version;
  std::atomic<int> fresh_byte;  // what new memory holds
  std::atomic<bool> create_needs_context;
  std::atomic<bool> no_stream_memory_operations;
  std::atomic<bool> memory_goes_with_exporter;
  std::atomic<bool> pageable_memory_access;  // GPUs reach all memory of a process
  std::atomic<bool> says_no_health;          // as GPUs without ECC, and drivers without events
  std::atomic<uint64_t> serial;              // of memory
  // What is not as it should be in cuDNN's attention.
  std::atomic<int64_t> attention_wrong_tensor;     // by its number in the graph; 0: none
  std::atomic<int64_t> attention_drifting_tensor;  // has not the same bits in every run
  std::atomic<int> attention_workspace_factor;     // more than it has to take
  std::atomic<bool> attention_says_nondeterministic;
  DeviceState device[kMostDevices];
  Fault fault[kMostFaults];
  std::atomic<uint64_t> calls[kMostFunctions];  // in the order of functions.h
};

// Eight GPUs of 1 GiB, of which `devices` are there, whole and without faults.
void Initialise(NodeFile* node, int devices);

// The file of this process: what the variable names, or one of its own with one GPU. Never null;
// ends the process if the file cannot be read.
NodeFile& ThisNode();

// Keeps other processes of the node, and other threads, from creating memory meanwhile.
class NodeLock {
 public:
  NodeLock();
  NodeLock(const NodeLock&) = delete;
  NodeLock& operator=(const NodeLock&) = delete;
  ~NodeLock();
};

// Devices are numbered: GPUs, then instances.
int DeviceCount(const NodeFile& node);
// The device itself, or the GPU that it is an instance of.
int GpuOf(const NodeFile& node, int device);
bool IsInstance(const NodeFile& node, int device);
// Its instances, in order; none: it is not divided.
std::vector<int> InstancesOf(const NodeFile& node, int gpu);

inline constexpr char kDeviceName[] = "Geminid driver double (not a GPU)";

// What CUDA and NVML call GPU `gpu`, "GPU-" and a UUID; instance `instance`, "MIG-" and one of its
// own; and either.
std::string UuidOf(int gpu);
std::string InstanceUuidOf(int instance);
std::string UuidOf(const NodeFile& node, int device);
std::string NameOf(const NodeFile& node, int device);
std::string PciBusIdOf(int gpu);

// Bytes of the device's memory that any process of the machine holds a descriptor of; of a divided
// GPU, of its instances' together.
uint64_t UsedBytes(const NodeFile& node, int device);

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_NODE_FILE_H_
