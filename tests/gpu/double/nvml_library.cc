// libnvidia-ml.so.1 of the double: the same GPUs as in its libcuda, all those of the node, and
// their instances.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "gpu/nvml_api.h"
#include "tests/gpu/double/node_file.h"

namespace geminid::gpu_double {
namespace {

using gpu::NvmlDevice;
using gpu::NvmlResult;

constexpr char kVersion[] = "570.00 (driver double)";
constexpr unsigned kFirstBus = 0x3B;

std::atomic<bool> initialised = false;

// The most instances of a GPU. They have the even places: a place is free if its instance was
// removed, and the other instances keep theirs.
constexpr unsigned kMostInstances = 7;
constexpr unsigned kPlacesOfAnInstance = 2;
constexpr unsigned kMigDisabled = 0;
constexpr unsigned kMigEnabled = 1;

// A handle is the address of a place in this table.
char devices[kMostDevices];

NvmlDevice HandleOf(int index) { return reinterpret_cast<NvmlDevice>(&devices[index]); }

// The number of the device, or -1.
int IndexOf(NvmlDevice device) {
  const auto at = reinterpret_cast<uintptr_t>(device) - reinterpret_cast<uintptr_t>(devices);
  return at < static_cast<uintptr_t>(DeviceCount(ThisNode())) ? static_cast<int>(at) : -1;
}

NvmlResult Check(NvmlDevice device) {
  if (!initialised) return NvmlResult::kUninitialized;
  const int index = IndexOf(device);
  if (index < 0) return NvmlResult::kInvalidArgument;
  return ThisNode().device[index].lost ? NvmlResult::kGpuIsLost : NvmlResult::kSuccess;
}

// Checks for calls that need a whole GPU.
NvmlResult CheckGpu(NvmlDevice device) {
  const NvmlResult result = Check(device);
  if (result != NvmlResult::kSuccess) return result;
  return IsInstance(ThisNode(), IndexOf(device)) ? NvmlResult::kInvalidArgument : result;
}

NvmlResult CopyText(const std::string& text, char* to, unsigned length) {
  if (to == nullptr) return NvmlResult::kInvalidArgument;
  if (text.size() >= length) return NvmlResult::kInsufficientSize;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return NvmlResult::kSuccess;
}

// Finds the first of `count` devices for which `is_it` holds.
template <typename Predicate>
NvmlResult FindDevice(int count, NvmlDevice* device, Predicate is_it) {
  if (!initialised) return NvmlResult::kUninitialized;
  if (device == nullptr) return NvmlResult::kInvalidArgument;
  for (int i = 0; i < count; ++i) {
    if (!is_it(i)) continue;
    *device = HandleOf(i);
    return ThisNode().device[i].lost ? NvmlResult::kGpuIsLost : NvmlResult::kSuccess;
  }
  return NvmlResult::kNotFound;
}

#ifndef GEMINID_OLD_NVML
// A device that a set of events of this process watches, and how many of its Xids were reported.
struct Watched {
  int index;
  uint64_t told;
};
struct EventSet {
  std::vector<Watched> watched;
};
EventSet* SetOf(gpu::NvmlEventSet set) { return reinterpret_cast<EventSet*>(set); }

// Checks for values that a GPU may not be able to report.
NvmlResult CheckHealth(NvmlDevice device) {
  const NvmlResult result = CheckGpu(device);
  if (result != NvmlResult::kSuccess) return result;
  return ThisNode().says_no_health ? NvmlResult::kNotSupported : result;
}

bool TakeEvent(EventSet* set, gpu::NvmlEventData* data) {
  for (Watched& watched : set->watched) {
    const DeviceState& state = ThisNode().device[watched.index];
    if (watched.told >= state.xids) continue;
    const Xid& xid = state.xid[watched.told++ % kMostXids];
    *data = {.device = HandleOf(watched.index),
             .type = gpu::kNvmlXidEvents,
             .data = xid.number,
             .gpu_instance = xid.instance,
             .compute_instance = gpu::kNvmlNoInstance};
    return true;
  }
  return false;
}
#endif

}  // namespace
}  // namespace geminid::gpu_double

#define GEMINID_EXPORT extern "C" __attribute__((visibility("default")))
using namespace geminid::gpu_double;  // NOLINT: this file is one library
using namespace geminid::gpu;         // NOLINT

// The names are the real library's.
// NOLINTBEGIN(readability-identifier-naming)
GEMINID_EXPORT NvmlResult nvmlInit_v2() {
  initialised = true;
  return NvmlResult::kSuccess;
}
GEMINID_EXPORT const char* nvmlErrorString(NvmlResult result) {
  switch (result) {
    case NvmlResult::kSuccess:
      return "The operation was successful";
    case NvmlResult::kUninitialized:
      return "NVML was not first initialized with nvmlInit()";
    case NvmlResult::kInvalidArgument:
      return "A supplied argument is invalid";
    case NvmlResult::kNotSupported:
      return "The requested operation is not available on target device";
    case NvmlResult::kNotFound:
      return "A query to find an object was unsuccessful";
    case NvmlResult::kGpuIsLost:
      return "The GPU has fallen off the bus or has otherwise become inaccessible";
    default:
      return "Unknown error";
  }
}
GEMINID_EXPORT NvmlResult nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return initialised ? CopyText(kVersion, version, length) : NvmlResult::kUninitialized;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetCount_v2(unsigned* count) {
  if (!initialised) return NvmlResult::kUninitialized;
  *count = static_cast<unsigned>(ThisNode().devices);
  return NvmlResult::kSuccess;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetHandleByIndex_v2(unsigned index, NvmlDevice* device) {
  const auto result =
      FindDevice(ThisNode().devices, device, [=](int i) { return i == static_cast<int>(index); });
  return result == NvmlResult::kNotFound ? NvmlResult::kInvalidArgument : result;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetHandleByPciBusId_v2(const char* id, NvmlDevice* device) {
  // The domain may have four digits or eight.
  const std::string wanted = id;
  return FindDevice(ThisNode().devices, device,
                    [&](int i) { return PciBusIdOf(i).ends_with(wanted); });
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetHandleByUUID(const char* uuid, NvmlDevice* device) {
  return FindDevice(DeviceCount(ThisNode()), device,
                    [&](int i) { return UuidOf(ThisNode(), i) == uuid; });
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetName(NvmlDevice device, char* name, unsigned length) {
  const NvmlResult result = Check(device);
  if (result != NvmlResult::kSuccess) return result;
  return CopyText(NameOf(ThisNode(), IndexOf(device)), name, length);
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetUUID(NvmlDevice device, char* uuid, unsigned length) {
  const NvmlResult result = Check(device);
  if (result != NvmlResult::kSuccess) return result;
  return CopyText(UuidOf(ThisNode(), IndexOf(device)), uuid, length);
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetPciInfo_v3(NvmlDevice device, NvmlPciInfo* info) {
  // The documentation does not allow an instance's handle here.
  const NvmlResult result = CheckGpu(device);
  if (result == NvmlResult::kInvalidArgument) return NvmlResult::kNotSupported;
  if (result != NvmlResult::kSuccess) return result;
  *info = {};
  info->bus = kFirstBus + static_cast<unsigned>(IndexOf(device));
  std::snprintf(info->bus_id, sizeof(info->bus_id), "%s", PciBusIdOf(IndexOf(device)).c_str());
  std::snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy), "%s",
                PciBusIdOf(IndexOf(device)).substr(4).c_str());
  return result;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetMemoryInfo(NvmlDevice device, NvmlMemory* memory) {
  const NvmlResult result = Check(device);
  if (result != NvmlResult::kSuccess) return result;
  const int index = IndexOf(device);
  memory->total_bytes = ThisNode().device[index].memory_bytes;
  memory->used_bytes = UsedBytes(ThisNode(), index);
  memory->free_bytes = memory->total_bytes - memory->used_bytes;
  return result;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetPersistenceMode(NvmlDevice device, int* mode) {
  *mode = 0;
  return Check(device);
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetComputeRunningProcesses_v3(NvmlDevice device,
                                                                  unsigned* count, NvmlProcess*) {
  *count = 0;
  return Check(device);
}
// The GPUs of a node without instances cannot be divided.
GEMINID_EXPORT NvmlResult nvmlDeviceGetMigMode(NvmlDevice device, unsigned* current,
                                               unsigned* pending) {
  const NvmlResult result = CheckGpu(device);
  if (result != NvmlResult::kSuccess) return result;
  if (ThisNode().instances == 0) return NvmlResult::kNotSupported;
  *current = InstancesOf(ThisNode(), IndexOf(device)).empty() ? kMigDisabled : kMigEnabled;
  *pending = *current;
  return result;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetMaxMigDeviceCount(NvmlDevice device, unsigned* count) {
  const NvmlResult result = CheckGpu(device);
  if (result != NvmlResult::kSuccess) return result;
  *count = InstancesOf(ThisNode(), IndexOf(device)).empty() ? 0 : kMostInstances;
  return result;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetMigDeviceHandleByIndex(NvmlDevice device, unsigned index,
                                                              NvmlDevice* instance) {
  const NvmlResult result = CheckGpu(device);
  if (result != NvmlResult::kSuccess) return result;
  const std::vector<int> instances = InstancesOf(ThisNode(), IndexOf(device));
  if (instances.empty()) return NvmlResult::kNotSupported;
  if (index >= kMostInstances) return NvmlResult::kInvalidArgument;
  const size_t place = index / kPlacesOfAnInstance;
  if (index % kPlacesOfAnInstance != 0 || place >= instances.size()) return NvmlResult::kNotFound;
  *instance = HandleOf(instances[place]);
  return result;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetDeviceHandleFromMigDeviceHandle(NvmlDevice instance,
                                                                       NvmlDevice* device) {
  const NvmlResult result = Check(instance);
  if (result != NvmlResult::kSuccess) return result;
  if (!IsInstance(ThisNode(), IndexOf(instance))) return NvmlResult::kInvalidArgument;
  *device = HandleOf(GpuOf(ThisNode(), IndexOf(instance)));
  return result;
}
#ifndef GEMINID_OLD_NVML
GEMINID_EXPORT NvmlResult nvmlDeviceGetTotalEccErrors(NvmlDevice device, int type, int counter,
                                                      unsigned long long* errors) {
  const NvmlResult result = CheckHealth(device);
  if (result != NvmlResult::kSuccess) return result;
  const bool known = counter == kNvmlVolatileCounter || counter == kNvmlAggregateCounter;
  if (type != kNvmlUncorrectedErrors || !known) return NvmlResult::kInvalidArgument;
  const DeviceState& state = ThisNode().device[IndexOf(device)];
  *errors = counter == kNvmlVolatileCounter ? state.volatile_errors : state.aggregate_errors;
  return result;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetRetiredPagesPendingStatus(NvmlDevice device, int* pending) {
  const NvmlResult result = CheckHealth(device);
  if (result != NvmlResult::kSuccess) return result;
  *pending = ThisNode().device[IndexOf(device)].retired_pages_pending ? 1 : 0;
  return result;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetRemappedRows(NvmlDevice device, unsigned* corrected,
                                                    unsigned* uncorrected, unsigned* pending,
                                                    unsigned* failed) {
  const NvmlResult result = CheckHealth(device);
  if (result != NvmlResult::kSuccess) return result;
  // Like the real library.
  if (!InstancesOf(ThisNode(), IndexOf(device)).empty()) return NvmlResult::kNotSupported;
  const DeviceState& state = ThisNode().device[IndexOf(device)];
  *corrected = 0;
  *uncorrected = state.row_remap_pending ? 1 : 0;
  *pending = state.row_remap_pending ? 1 : 0;
  *failed = state.row_remap_failed ? 1 : 0;
  return result;
}
GEMINID_EXPORT NvmlResult nvmlDeviceGetGpuInstanceId(NvmlDevice instance, unsigned* id) {
  const NvmlResult result = Check(instance);
  if (result != NvmlResult::kSuccess) return result;
  const int index = IndexOf(instance);
  if (!IsInstance(ThisNode(), index)) return NvmlResult::kInvalidArgument;
  *id = static_cast<unsigned>(index - ThisNode().devices);
  return result;
}
GEMINID_EXPORT NvmlResult nvmlEventSetCreate(NvmlEventSet* set) {
  if (!initialised) return NvmlResult::kUninitialized;
  if (set == nullptr) return NvmlResult::kInvalidArgument;
  *set = reinterpret_cast<NvmlEventSet>(new EventSet);
  return NvmlResult::kSuccess;
}
GEMINID_EXPORT NvmlResult nvmlEventSetFree(NvmlEventSet set) {
  delete SetOf(set);
  return NvmlResult::kSuccess;
}
GEMINID_EXPORT NvmlResult nvmlDeviceRegisterEvents(NvmlDevice device, unsigned long long types,
                                                   NvmlEventSet set) {
  const NvmlResult result = CheckHealth(device);
  if (result != NvmlResult::kSuccess) return result;
  if (types != kNvmlXidEvents) return NvmlResult::kNotSupported;
  const int index = IndexOf(device);
  SetOf(set)->watched.push_back({index, ThisNode().device[index].xids});
  return result;
}
GEMINID_EXPORT NvmlResult nvmlEventSetWait_v2(NvmlEventSet set, NvmlEventData* data,
                                              unsigned milliseconds) {
  if (set == nullptr || data == nullptr) return NvmlResult::kInvalidArgument;
  constexpr unsigned kMicrosecondsPerMillisecond = 1000;
  for (unsigned waited = 0; !TakeEvent(SetOf(set), data); ++waited) {
    if (waited >= milliseconds) return NvmlResult::kTimeout;
    ::usleep(kMicrosecondsPerMillisecond);
  }
  return NvmlResult::kSuccess;
}
#endif
// NOLINTEND(readability-identifier-naming)
