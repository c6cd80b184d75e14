// A hold on a chunk's device copy: the copy cannot be evicted while the lease exists.
#ifndef GEMINID_LEASE_H_
#define GEMINID_LEASE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "geminid/export.h"
#include "geminid/stream.h"
#include "geminid/types.h"

namespace geminid {

class Session;

// Move-only; the destructor releases it. Must not outlive its session. One thread at a time.
class GEMINID_EXPORT Lease {
 public:
  Lease() = default;  // holds nothing
  Lease(Lease&& other) noexcept
      : data(std::exchange(other.data, nullptr)),
        size(std::exchange(other.size, 0)),
        session_(std::exchange(other.session_, nullptr)),
        chunk_(other.chunk_),
        dirty_(std::exchange(other.dirty_, false)) {}
  Lease& operator=(Lease&& other) noexcept {
    Lease old(std::move(*this));
    data = std::exchange(other.data, nullptr);
    size = std::exchange(other.size, 0);
    session_ = std::exchange(other.session_, nullptr);
    chunk_ = other.chunk_;
    dirty_ = std::exchange(other.dirty_, false);
    return *this;
  }
  ~Lease() {
    if (session_ != nullptr) Release();
  }

  std::byte* data = nullptr;  // on the device
  uint64_t size = 0;

  ChunkId chunk() const { return chunk_; }
  explicit operator bool() const { return session_ != nullptr; }

  // The device copy was, or will be, written under this lease, so it must be written back before it
  // may be dropped. Takes effect at the release: the chunk's state becomes HOLD, and the daemon is
  // told before the hold ends. If that step is not legal, the hold stays, and so does the data. No
  // effect on chunks without a home.
  void MarkDirty() { dirty_ = true; }

  // Ends the hold now. Takes a few nanoseconds; if dirty, a request, but does not block.
  void Release();

  // Ends the hold once all work queued on `stream` so far is complete.
  void ReleaseAfter(Stream& stream);

 private:
  friend class Session;
  Lease(Session* session, ChunkId chunk, std::byte* bytes, uint64_t byte_count)
      : data(bytes), size(byte_count), session_(session), chunk_(chunk) {}

  Session* session_ = nullptr;
  ChunkId chunk_ = kNoChunk;
  bool dirty_ = false;
};

}  // namespace geminid

#endif  // GEMINID_LEASE_H_
