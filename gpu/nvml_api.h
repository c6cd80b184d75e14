// NVML, the driver's management library, as a table of functions that are loaded at run time. NVML
// needs no context and takes no device memory, so processes that only monitor use it, not CUDA.
//
// NVML's header is not part of the CUDA toolkit's minimum, so the types are our own: those of the
// variants named below, which have not changed since R510. This header does not need Abseil.
#ifndef GEMINID_GPU_NVML_API_H_
#define GEMINID_GPU_NVML_API_H_

#include <string>

namespace geminid::gpu {

using NvmlDevice = struct NvmlDeviceTag*;
using NvmlEventSet = struct NvmlEventSetTag*;

enum class NvmlResult : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kGpuIsLost = 15,
  kUnknown = 999,
};

struct NvmlMemory {
  unsigned long long total_bytes, free_bytes, used_bytes;
};

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device;
  unsigned pci_device_id, pci_subsystem_id;
  char bus_id[32];  // 00000000:3B:00.0
};

struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;  // all ones: not known
  unsigned gpu_instance, compute_instance;
};

inline constexpr unsigned kNvmlTextBytes = 96;  // for names, versions and UUIDs

// The counters: uncorrected errors, since the driver was loaded (volatile) or ever (aggregate).
inline constexpr int kNvmlUncorrectedErrors = 1;
inline constexpr int kNvmlVolatileCounter = 0;
inline constexpr int kNvmlAggregateCounter = 1;

inline constexpr unsigned long long kNvmlXidEvents = 0x8;
inline constexpr unsigned kNvmlNoInstance = 0xffffffff;

struct NvmlEventData {
  NvmlDevice device;
  unsigned long long type;
  unsigned long long data;                  // of kNvmlXidEvents: the Xid
  unsigned gpu_instance, compute_instance;  // kNvmlNoInstance: of the whole GPU
};

// One line per function: member, name in the library, parameters.
#define GEMINID_NVML_FUNCTIONS(X)                                                               \
  X(init, "nvmlInit_v2", ())                                                                    \
  X(system_get_driver_version, "nvmlSystemGetDriverVersion", (char*, unsigned))                 \
  X(device_get_count, "nvmlDeviceGetCount_v2", (unsigned*))                                     \
  X(device_get_handle_by_index, "nvmlDeviceGetHandleByIndex_v2", (unsigned, NvmlDevice*))       \
  X(device_get_handle_by_pci_bus_id, "nvmlDeviceGetHandleByPciBusId_v2",                        \
    (const char*, NvmlDevice*))                                                                 \
  X(device_get_handle_by_uuid, "nvmlDeviceGetHandleByUUID", (const char*, NvmlDevice*))         \
  X(device_get_name, "nvmlDeviceGetName", (NvmlDevice, char*, unsigned))                        \
  X(device_get_uuid, "nvmlDeviceGetUUID", (NvmlDevice, char*, unsigned))                        \
  X(device_get_pci_info, "nvmlDeviceGetPciInfo_v3", (NvmlDevice, NvmlPciInfo*))                 \
  X(device_get_memory_info, "nvmlDeviceGetMemoryInfo", (NvmlDevice, NvmlMemory*))               \
  X(device_get_persistence_mode, "nvmlDeviceGetPersistenceMode", (NvmlDevice, int*))            \
  X(device_get_compute_running_processes, "nvmlDeviceGetComputeRunningProcesses_v3",            \
    (NvmlDevice, unsigned*, NvmlProcess*))                                                      \
  X(device_get_mig_mode, "nvmlDeviceGetMigMode", (NvmlDevice, unsigned*, unsigned*))            \
  X(device_get_max_mig_device_count, "nvmlDeviceGetMaxMigDeviceCount", (NvmlDevice, unsigned*)) \
  X(device_get_mig_device_handle_by_index, "nvmlDeviceGetMigDeviceHandleByIndex",               \
    (NvmlDevice, unsigned, NvmlDevice*))                                                        \
  X(device_get_gpu_of_mig_device, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",               \
    (NvmlDevice, NvmlDevice*))

// Functions for the health of GPUs: null if the library lacks them.
#define GEMINID_NVML_HEALTH_FUNCTIONS(X)                                               \
  X(device_get_total_ecc_errors, "nvmlDeviceGetTotalEccErrors",                        \
    (NvmlDevice, int, int, unsigned long long*))                                       \
  X(device_get_retired_pages_pending_status, "nvmlDeviceGetRetiredPagesPendingStatus", \
    (NvmlDevice, int*))                                                                \
  X(device_get_remapped_rows, "nvmlDeviceGetRemappedRows",                             \
    (NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*))                          \
  X(device_get_gpu_instance_id, "nvmlDeviceGetGpuInstanceId", (NvmlDevice, unsigned*)) \
  X(event_set_create, "nvmlEventSetCreate", (NvmlEventSet*))                           \
  X(event_set_free, "nvmlEventSetFree", (NvmlEventSet))                                \
  X(event_set_wait, "nvmlEventSetWait_v2", (NvmlEventSet, NvmlEventData*, unsigned))   \
  X(device_register_events, "nvmlDeviceRegisterEvents",                                \
    (NvmlDevice, unsigned long long, NvmlEventSet))

struct NvmlApi {
#define GEMINID_MEMBER(member, name, parameters) NvmlResult(*member) parameters = nullptr;
  GEMINID_NVML_FUNCTIONS(GEMINID_MEMBER)
  GEMINID_NVML_HEALTH_FUNCTIONS(GEMINID_MEMBER)
#undef GEMINID_MEMBER
  const char* (*error_string)(NvmlResult) = nullptr;
};

// Names the library if it is not libnvidia-ml.so.1 on the loader's path. Set-user-ID programs
// ignore it.
inline constexpr char kNvmlPathVariable[] = "GEMINID_LIBNVML";

// Fills the table. False, with `error` set, if there is no library or it lacks a required function.
// Does not initialise NVML. The library stays loaded for the life of the process.
bool LoadNvmlApi(NvmlApi* api, std::string* error);

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_NVML_API_H_
