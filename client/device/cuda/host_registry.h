// Page-locks host memory in the background. The driver takes about 0.1 s per GiB and holds locks
// meanwhile, so the memory is divided into pieces. A piece that a copy already needs is registered
// first.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_HOST_REGISTRY_H_
#define GEMINID_CLIENT_DEVICE_CUDA_HOST_REGISTRY_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "absl/status/status.h"
#include "client/device/cuda/cuda_context.h"
#include "client/device/cuda/host_registration_counts.h"

namespace geminid::device {

// Larger pieces would hold the driver's locks for longer than other work should wait.
inline constexpr uint64_t kRegisteredPieceBytes = uint64_t{1} << 30;

// Thread-safe. Starts one thread, with the first memory.
class HostRegistry {
 public:
  HostRegistry(std::shared_ptr<CudaContext> context, uint64_t piece_bytes = kRegisteredPieceBytes,
               HostRegistrationObserver observer = {});
  HostRegistry(const HostRegistry&) = delete;
  HostRegistry& operator=(const HostRegistry&) = delete;
  ~HostRegistry();  // unregisters all memory

  // Returns at once. INVALID_ARGUMENT if `memory` overlaps memory that was added before.
  absl::Status Add(std::span<std::byte> memory);
  // For a span that was added. Waits for a piece in progress. No copy may use the memory any more.
  void Remove(std::span<std::byte> memory);

  // How many of the bytes from `place` on, at most `bytes`, are alike: in one registered piece, or
  // in no registered piece. A piece that waits is moved to the front.
  struct Stretch {
    uint64_t bytes = 0;
    bool registered = false;
  };
  Stretch Find(const void* place, uint64_t bytes);

  HostRegistrationCounts totals() const;
  // The first refusal of the driver.
  absl::Status status() const;

 private:
  enum class Stage { kWaiting, kAtWork, kRegistered, kRefused };
  struct RegisteredPart {
    uint64_t bytes = 0;
    Stage stage = Stage::kWaiting;
    uint64_t urgency = 0;  // the greatest first, then the lowest address
  };
  using Pieces = std::map<uintptr_t, RegisteredPart>;

  void Run();
  Pieces::iterator Next();
  void Forget(const RegisteredPart& piece);
  void Tell() const {
    if (observer_) observer_(totals_);
  }

  const std::shared_ptr<CudaContext> context_;
  const uint64_t piece_bytes_;
  const HostRegistrationObserver observer_;  // called under mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  Pieces pieces_;
  HostRegistrationCounts totals_;
  absl::Status status_;
  uint64_t urgency_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_HOST_REGISTRY_H_
