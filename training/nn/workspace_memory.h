// Presents the engine's workspace as memory for layers that span ranks. Their bytes belong to the
// arena: the sampler sees them, and the plan has room for them.
#ifndef GEMINID_TRAINING_NN_WORKSPACE_MEMORY_H_
#define GEMINID_TRAINING_NN_WORKSPACE_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "geminid/zero.h"
#include "training/nn/parallel/memory.h"

namespace geminid::trainer {

// Blocks are in the workspace's memory: the host's, or a GPU's.
class WorkspaceMemory final : public collectives::Memory {
 public:
  WorkspaceMemory() = default;  // not bound yet
  explicit WorkspaceMemory(zero::Workspace& workspace) : workspace_(&workspace) {}

  // Uses this workspace from now on. It outlives all blocks.
  void Bind(zero::Workspace& workspace) { workspace_ = &workspace; }

 private:
  absl::StatusOr<Block> Take(size_t bytes) override {
    if (workspace_ == nullptr) return absl::FailedPreconditionError("there is no workspace yet");
    GEMINID_ASSIGN_OR_RETURN(zero::Workspace::Block block, workspace_->Allocate(bytes));
    std::byte* const data = block.data();
    return Block(data, bytes, std::move(block));
  }

  zero::Workspace* workspace_ = nullptr;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_WORKSPACE_MEMORY_H_
