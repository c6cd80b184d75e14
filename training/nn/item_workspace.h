// Presents one item of an ActivationStack as a workspace. An operator stores the values for its
// backward pass there, block after block.
#ifndef GEMINID_TRAINING_NN_ITEM_WORKSPACE_H_
#define GEMINID_TRAINING_NN_ITEM_WORKSPACE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/pages.h"
#include "geminid/zero.h"

namespace geminid::trainer {

// All blocks are freed together with the item. Not thread-safe.
class ItemWorkspace final : public zero::Workspace {
 public:
  // `place` has `bytes`. Without `place`, blocks have no data: the object counts the bytes of an
  // item.
  ItemWorkspace() = default;
  ItemWorkspace(std::byte* place, uint64_t bytes) : place_(place), bytes_(bytes) {}

  uint64_t used_bytes() const { return used_; }

  absl::StatusOr<Block> Allocate(uint64_t bytes) override {
    constexpr uint64_t kAlignment = 64;
    const uint64_t rounded = base::RoundUp(bytes, kAlignment);
    if (place_ == nullptr) {
      used_ += rounded;
      return MakeBlock(nullptr, rounded);
    }
    if (rounded > bytes_ - used_) {
      return absl::InternalError("an item of activations is larger than its shape said");
    }
    std::byte* const data = place_ + used_;
    used_ += rounded;
    return MakeBlock(data, rounded);
  }

 protected:
  void Free(std::byte* /*data*/, uint64_t /*bytes*/) override {}

 private:
  std::byte* const place_ = nullptr;
  const uint64_t bytes_ = 0;
  uint64_t used_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_ITEM_WORKSPACE_H_
