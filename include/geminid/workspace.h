// The trainer's own device memory: activations and scratch.
#ifndef GEMINID_WORKSPACE_H_
#define GEMINID_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "geminid/export.h"

namespace geminid::zero {

// Device memory that is not model data: activations and scratch. Blocks come from the top of the
// rank's arena, chunks from its bottom. The sample counts every byte, so plans are exact.
class GEMINID_EXPORT Workspace {
 public:
  // Move-only; frees its bytes when destroyed or assigned to. A block that outlives the engine
  // frees nothing.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept;
    Block& operator=(Block&& other) noexcept;
    ~Block();
    std::byte* data() const { return data_; }
    uint64_t bytes() const { return bytes_; }
    explicit operator bool() const { return data_ != nullptr; }
    // Whether it belongs to this workspace, and not to one that has ended.
    bool IsOf(const Workspace& workspace) const {
      return owner_ != nullptr && *owner_ == &workspace;
    }

   private:
    friend class Workspace;
    void Free();

    std::shared_ptr<Workspace*> owner_;  // points to null: it has ended
    std::byte* data_ = nullptr;
    uint64_t bytes_ = 0;
  };

  Workspace();
  virtual ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // `bytes` aligned to 64, uninitialised. RESOURCE_EXHAUSTED names the bytes requested and in use,
  // and the arena's capacity. Takes the highest free place, so blocks freed in reverse order leave
  // no holes. Does not block once a plan is in force, unless another thread is in a call of the
  // engine: that call's placements come first.
  virtual absl::StatusOr<Block> Allocate(uint64_t bytes) = 0;

 protected:
  virtual void Free(std::byte* data, uint64_t bytes) = 0;
  Block MakeBlock(std::byte* data, uint64_t bytes);

 private:
  const std::shared_ptr<Workspace*> self_;
};

}  // namespace geminid::zero

#endif  // GEMINID_WORKSPACE_H_
