#include "tests/gpu/double/node.h"

#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv, mkstemp
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gpu/cublaslt_api.h"
#include "gpu/cudnn_api.h"
#include "gpu/library_search.h"
#include "gpu/nccl_api.h"
#include "gpu/nvml_api.h"
#include "tests/gpu/double/functions.h"

namespace geminid::gpu_double {
namespace {

void Set(const char* variable, const std::string& value) {
  if (!value.empty()) setenv(variable, value.c_str(), 1);
}

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

}  // namespace

Node::Node(const NodeOptions& options) {
  const char* const folder = std::getenv("TMPDIR");
  path_ = std::string(folder == nullptr ? "/tmp" : folder) + "/geminid-gpu-double-XXXXXX";
  const int fd = mkstemp(path_.data());
  if (fd < 0 || ftruncate(fd, sizeof(NodeFile)) != 0) Die(path_.c_str());
  void* const data = mmap(nullptr, sizeof(NodeFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (data == MAP_FAILED) Die(path_.c_str());
  file_ = static_cast<NodeFile*>(data);
  Initialise(file_, options.devices);
  for (DeviceState& device : file_->device) device.memory_bytes = options.memory_bytes;
  if (options.devices + options.instances > kMostDevices) Die("driver double: too many devices");
  file_->instances = options.instances;
  for (int i = 0; i < options.instances; ++i) {
    DeviceState& instance = file_->device[options.devices + i];
    const uint64_t share = options.memory_bytes / static_cast<uint64_t>(options.instances);
    instance.part_of = 0;
    instance.memory_bytes = share / kGranularityBytes * kGranularityBytes;
  }
  Set(kNodeFileVariable, path_);
  Set(gpu::kDriverPathVariable, options.libcuda);
  Set(gpu::kNvmlPathVariable, options.libnvml);
  Set(kKernelsVariable, options.kernels);
  if (!options.libcuda.empty()) {
    Set(gpu::kCublasLtPathVariable,
        options.libcublaslt.empty() ? gpu::kNoLibrary : options.libcublaslt);
    Set(gpu::kCudnnPathVariable, options.libcudnn.empty() ? gpu::kNoLibrary : options.libcudnn);
    Set(gpu::kNcclPathVariable, options.libnccl.empty() ? gpu::kNoLibrary : options.libnccl);
  }
}

Node::~Node() {
  ClearFaults();
  unlink(path_.c_str());
  munmap(file_, sizeof(NodeFile));
  for (const char* variable :
       {kNodeFileVariable, gpu::kDriverPathVariable, gpu::kNvmlPathVariable, kKernelsVariable,
        gpu::kCublasLtPathVariable, gpu::kCudnnPathVariable, gpu::kNcclPathVariable}) {
    unsetenv(variable);
  }
}

uint64_t Node::used_bytes(int device) const { return UsedBytes(*file_, device); }
uint64_t Node::bytes_to_host(int device) const { return file_->device[device].bytes_to_host; }

void Node::SetMemoryBytes(int device, uint64_t bytes) {
  file_->device[device].memory_bytes = bytes;
}
void Node::SetCopySpeed(int device, uint64_t bytes_per_second, uint64_t latency_ns) {
  file_->device[device].copy_bytes_per_second = bytes_per_second;
  file_->device[device].copy_latency_ns = latency_ns;
}
void Node::Hold(int device, bool held) { file_->device[device].held = held; }
void Node::SetLost(int device, bool lost) {
  file_->device[device].lost = lost;
  for (const int instance : InstancesOf(*file_, device)) file_->device[instance].lost = lost;
}

void Node::SetUncorrectedErrors(int device, uint64_t since_load, uint64_t ever) {
  file_->device[device].volatile_errors = since_load;
  file_->device[device].aggregate_errors = ever;
}
void Node::SetRetiredPagesPending(int device, bool pending) {
  file_->device[device].retired_pages_pending = pending;
}
void Node::SetRowRemaps(int device, bool pending, bool failed) {
  file_->device[device].row_remap_pending = pending;
  file_->device[device].row_remap_failed = failed;
}
void Node::RaiseXid(int device, uint32_t xid, std::optional<uint32_t> instance) {
  DeviceState& state = file_->device[device];
  Xid& next = state.xid[state.xids % kMostXids];
  next.number = xid;
  next.instance = instance.value_or(gpu::kNvmlNoInstance);
  ++state.xids;
}
void Node::SetSaysNoHealth(bool none) { file_->says_no_health = none; }

Fault* Node::NewFault(std::string_view function) {
  if (IndexOf(function) < 0 || function.size() >= kNameBytes) {
    std::fprintf(stderr, "driver double: no function %.*s\n", static_cast<int>(function.size()),
                 function.data());
    std::abort();
  }
  for (Fault& fault : file_->fault) {
    if (fault.kind != FaultKind::kNone) continue;
    std::memset(fault.function, 0, kNameBytes);
    std::memcpy(fault.function, function.data(), function.size());
    return &fault;
  }
  Die("driver double: more faults than it keeps");
}

void Node::Hang(std::string_view function) {
  Fault* const fault = NewFault(function);
  fault->skips = 0;
  fault->kind = FaultKind::kHang;
}

void Node::Fail(std::string_view function, CUresult result, int64_t skips, int64_t times) {
  FailLibrary(function, static_cast<int>(result), skips, times);
}

void Node::FailLibrary(std::string_view function, int result, int64_t skips, int64_t times) {
  Fault* const fault = NewFault(function);
  fault->result = result;
  fault->skips = skips;
  fault->times = times;
  fault->kind = FaultKind::kFail;
}

void Node::EndHang(std::string_view function) {
  for (Fault& fault : file_->fault) {
    if (fault.kind == FaultKind::kHang && function == fault.function) {
      fault.kind = FaultKind::kNone;
    }
  }
}

void Node::ClearFaults() {
  for (Fault& fault : file_->fault) fault.kind = FaultKind::kNone;
}

void Node::SetFreshByte(int byte) { file_->fresh_byte = byte; }
void Node::SetCreateNeedsContext(bool needs) { file_->create_needs_context = needs; }
void Node::SetNoStreamMemoryOperations(bool none) { file_->no_stream_memory_operations = none; }
void Node::SetMemoryGoesWithExporter(bool goes) { file_->memory_goes_with_exporter = goes; }
void Node::SetPageableMemoryAccess(bool access) { file_->pageable_memory_access = access; }
void Node::SetAttentionWrong(int64_t tensor) { file_->attention_wrong_tensor = tensor; }
void Node::SetAttentionDrifting(int64_t tensor) { file_->attention_drifting_tensor = tensor; }
void Node::SetAttentionWorkspaceFactor(int factor) { file_->attention_workspace_factor = factor; }
void Node::SetAttentionSaysNondeterministic(bool says) {
  file_->attention_says_nondeterministic = says;
}
void Node::SetDriverVersion(int version) { file_->driver_version = version; }

uint64_t Node::calls(std::string_view function) const {
  const int index = IndexOf(function);
  return index < 0 ? 0 : file_->calls[index].load();
}

}  // namespace geminid::gpu_double
