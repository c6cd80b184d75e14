// Which memory of a rank's GPU communicators register with NCCL ("user buffers"), while it is
// mapped.
#ifndef GEMINID_COLLECTIVES_NCCL_NCCL_BUFFERS_H_
#define GEMINID_COLLECTIVES_NCCL_NCCL_BUFFERS_H_

#include <cstddef>
#include <mutex>
#include <set>
#include <span>
#include <vector>

namespace geminid::collectives {

// Somebody who registers memory: a communicator's NCCL.
class BufferUser {
 public:
  virtual ~BufferUser() = default;
  virtual bool Register(std::span<std::byte> memory) = 0;    // whether it could
  virtual void Deregister(std::span<std::byte> memory) = 0;  // which was registered
};

// Thread-safe. Nobody's call may lead back into it.
class NcclBuffers {
 public:
  // For those who use it and those who will. One allocation of the driver's each: older versions of
  // NCCL map no more than that of a registration.
  void Add(std::span<std::byte> memory);
  // When it returns, nothing is registered any more and all may be unmapped. Waits for operations
  // under way.
  void RemoveAll();

  // `user` hears of all there is, and of all that comes and goes, until Leave returns, which is
  // before its end. Whether it could register all there is now.
  bool Join(BufferUser* user);
  void Leave(BufferUser* user);

 private:
  std::mutex mutex_;
  std::vector<std::span<std::byte>> ranges_;
  std::set<BufferUser*> users_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_NCCL_NCCL_BUFFERS_H_
