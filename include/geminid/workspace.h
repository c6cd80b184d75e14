// A trainer's own memory on the device: activations and scratch.
#ifndef GEMINID_WORKSPACE_H_
#define GEMINID_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "geminid/export.h"

namespace geminid::zero {

// Device memory that is not model data: activations and scratch. The blocks come from the top of
// the rank's arena, chunks from the bottom; the sampler sees every byte, so the plan is exact.
class GEMINID_EXPORT Workspace {
 public:
  // Move-only; returns its bytes when destroyed or assigned to. One that outlives the engine gives
  // nothing back.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept;
    Block& operator=(Block&& other) noexcept;
    ~Block();
    std::byte* data() const { return data_; }
    uint64_t bytes() const { return bytes_; }
    explicit operator bool() const { return data_ != nullptr; }
    // Whether it is of this workspace, and not of one that has ended.
    bool IsOf(const Workspace& workspace) const {
      return owner_ != nullptr && *owner_ == &workspace;
    }

   private:
    friend class Workspace;
    void Free();

    std::shared_ptr<Workspace*> owner_;  // null in it: it has ended
    std::byte* data_ = nullptr;
    uint64_t bytes_ = 0;
  };

  Workspace();
  virtual ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // `bytes` aligned to 64, uninitialised. RESOURCE_EXHAUSTED names the bytes asked for, in use and
  // the arena's capacity. The highest free place is taken, so freeing in reverse order of
  // allocation leaves no holes. Does not block once the plan is in force, unless another thread is
  // in a call of the engine: what that call places comes first.
  virtual absl::StatusOr<Block> Allocate(uint64_t bytes) = 0;

 protected:
  virtual void Free(std::byte* data, uint64_t bytes) = 0;
  Block MakeBlock(std::byte* data, uint64_t bytes);

 private:
  const std::shared_ptr<Workspace*> self_;
};

}  // namespace geminid::zero

#endif  // GEMINID_WORKSPACE_H_
