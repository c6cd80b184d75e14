// An NVIDIA GPU, through its driver (gpu/). The same binary runs on machines without one.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_CUDA_DEVICE_H_
#define GEMINID_CLIENT_DEVICE_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/device/cuda/host_registration_counts.h"
#include "client/device/device.h"

namespace geminid::device {

struct CudaDeviceOptions {
  // "GPU-..." or "MIG-...", or the digits alone; empty: the first GPU that this process sees.
  std::string uuid;
  // The GPU writes no completion words. Instead, the streams' threads write them when events say
  // that copies have completed. For a GPU whose words other processes may see before the data
  // (docs/gpu-verification.md, G16).
  bool completes_by_events = false;
  // Called about host memory that is registered with the device.
  HostRegistrationObserver on_registration = {};
};

// Differences from other devices:
//  * Slabs are allocations of cuMemCreate that were exported. Sizes of slabs and of the arena are
//    multiples of the GPU's granularity (2 MiB today).
//  * RegisterHost returns at once: memory is page-locked in pieces, in the background. Until then,
//    copies of a piece go through page-locked memory of the library, by the stream's thread.
//  * The GPU writes a completion word that lies in registered memory. Otherwise the stream's thread
//    writes it when it finds the copy complete.
//  * HostAddress returns null for addresses of the arena.
//  * StreamOf takes a CUstream of the device's primary context. Null is its default stream, which
//    synchronizes with streams made without CU_STREAM_NON_BLOCKING. The stream must outlive the
//    work that is queued on it through the handle.
//  * Creates the primary context if there is none: 300 to 600 MiB of the GPU, once per process.
// UNAVAILABLE without a driver or GPU, NOT_FOUND without that GPU. UNIMPLEMENTED if the GPU cannot
// share memory by descriptors, or its streams cannot wait for words.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options);

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_CUDA_DEVICE_H_
