// An NVIDIA GPU, through its driver (gpu/): the same binary runs on machines without one.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_CUDA_DEVICE_H_
#define GEMINID_CLIENT_DEVICE_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/device/cuda/host_pieces.h"
#include "client/device/device.h"

namespace geminid::device {

struct CudaDeviceOptions {
  // "GPU-..." or "MIG-...", or without that; empty: the first that this process sees.
  std::string uuid;
  // The GPU writes no completion words: the streams' threads do, when events say that copies are
  // done. For a GPU whose words another process may see before the data (docs/gpu-verification.md,
  // G16).
  bool completes_by_events = false;
  // Of the host memory that is registered with it.
  HostPiecesObserver on_registration = {};
};

// What is particular to it:
//  * Slabs are what cuMemCreate made and exported. They, and the arena, are multiples of its
//    granularity (2 MiB today).
//  * RegisterHost returns at once: memory is page-locked in pieces, in the background. Until its
//    piece is, a copy takes a detour through memory of the library, by way of the stream's thread.
//  * A completion word is written by the GPU where it lies in registered memory, else by the
//    stream's thread when it finds the copy done.
//  * HostAddress is null for addresses of the arena.
//  * StreamOf takes a CUstream of the device's primary context; null is its default stream, which
//    waits for those made without CU_STREAM_NON_BLOCKING and makes them wait. The stream outlives
//    the work that is queued on it through the handle.
//  * The primary context is made where there is none: 300 to 600 MiB of the GPU, once per process.
// UNAVAILABLE without a driver or GPU, NOT_FOUND without that GPU, UNIMPLEMENTED when it cannot
// share memory by descriptors or its streams cannot wait for words.
absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options);

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_CUDA_DEVICE_H_
