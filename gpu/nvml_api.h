// NVML, the driver's management library, as a table of functions found when the program runs. It
// needs no context and takes no device memory, so a process that only looks uses it and not CUDA.
//
// Its header is not part of the CUDA toolkit's minimum, so the types are our own: those of the
// variants named below, which have not changed since R510. Nothing of this header needs Abseil.
#ifndef GEMINID_GPU_NVML_API_H_
#define GEMINID_GPU_NVML_API_H_

#include <string>

namespace geminid::gpu {

using NvmlDevice = struct NvmlDeviceTag*;

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

struct NvmlApi {
#define GEMINID_MEMBER(member, name, parameters) NvmlResult(*member) parameters = nullptr;
  GEMINID_NVML_FUNCTIONS(GEMINID_MEMBER)
#undef GEMINID_MEMBER
  const char* (*error_string)(NvmlResult) = nullptr;
};

// Names the library where it is not libnvidia-ml.so.1 on the loader's path. Not read by set-user-ID
// programs.
inline constexpr char kNvmlPathVariable[] = "GEMINID_LIBNVML";

// Fills the table. False with `error` set where there is no library or it lacks a function. Does
// not initialise it. What is loaded stays for the life of the process.
bool LoadNvmlApi(NvmlApi* api, std::string* error);

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_NVML_API_H_
