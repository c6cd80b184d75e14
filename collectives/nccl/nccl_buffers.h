// Memory of a rank's GPU that communicators register with NCCL ("user buffers") while it is
// mapped.
#ifndef GEMINID_COLLECTIVES_NCCL_NCCL_BUFFERS_H_
#define GEMINID_COLLECTIVES_NCCL_NCCL_BUFFERS_H_

#include <cstddef>
#include <mutex>
#include <set>
#include <span>
#include <vector>

namespace geminid::collectives {

// Registers memory: a communicator's NCCL.
class BufferUser {
 public:
  virtual ~BufferUser() = default;
  virtual bool Register(std::span<std::byte> memory) = 0;    // whether it was registered
  virtual void Deregister(std::span<std::byte> memory) = 0;  // `memory` was registered
};

// Thread-safe. A user's functions must not call back into it.
class NcclBuffers {
 public:
  // Adds memory for current and later users. One allocation of the driver per call, because older
  // versions of NCCL map only one allocation per registration.
  void Add(std::span<std::byte> memory);
  // When it returns, nothing is registered any more and all memory may be unmapped. Waits for
  // operations in progress.
  void RemoveAll();

  // `user` is told of all memory, and of later changes, until Leave returns; it must call Leave
  // before it ends. Returns whether it could register all current memory.
  bool Join(BufferUser* user);
  void Leave(BufferUser* user);

 private:
  std::mutex mutex_;
  std::vector<std::span<std::byte>> ranges_;
  std::set<BufferUser*> users_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_NCCL_NCCL_BUFFERS_H_
