// How far the host memory of a device is registered with its driver.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_HOST_PIECES_H_
#define GEMINID_CLIENT_DEVICE_CUDA_HOST_PIECES_H_

#include <cstdint>
#include <functional>

namespace geminid::device {

struct HostPieces {
  uint64_t given_bytes = 0;
  uint64_t registered_bytes = 0;
  uint64_t refused_bytes = 0;  // by the driver; copies of them take a detour for good
  uint64_t given = 0;          // pieces
  uint64_t registered = 0;
  uint64_t refused = 0;
};

// Told of each change, by the thread that makes it, one at a time. It is quick, and calls nothing
// of the device.
using HostPiecesObserver = std::function<void(const HostPieces&)>;

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_HOST_PIECES_H_
