// A daemon's note about the node for the next daemon: the memory that it could hand out, whether
// the operator has drained the node, and whether the daemon crashed.
//
// A small sealed file in memory, which lies in the descriptor store beside the manifest.
#ifndef GEMINID_DAEMON_SERVICE_HERITAGE_NODE_RECORD_H_
#define GEMINID_DAEMON_SERVICE_HERITAGE_NODE_RECORD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "daemon/core/engine/engine.h"
#include "daemon/os/crash_note.h"

namespace geminid::service {

class NodeRecord {
 public:
  // An absent record: notes nothing.
  NodeRecord() = default;
  // A new record with this daemon's capacities.
  static absl::StatusOr<NodeRecord> Create(const core::EngineOptions& engine);
  // The record that an earlier daemon wrote into `fd`; absent if `fd` is invalid or another release
  // wrote it. The caller owns `fd` until Own().
  static absl::StatusOr<NodeRecord> Open(const base::UniqueFd& fd);
  void Own(base::UniqueFd fd) { fd_ = std::move(fd); }

  // Put the earlier daemon's capacities in the place of defaults, which nobody chose. After a
  // restart the machine would report less memory.
  void ReplaceHostCapacity(core::EngineOptions* engine) const;
  void ReplaceDeviceCapacities(core::EngineOptions* engine) const;

  // Whether the earlier daemon crashed. From now on the note is this daemon's.
  bool TakeCrashNote();

  bool IsDrained() const;
  void NoteDrain(bool drained);

  const base::UniqueFd& fd() const { return fd_; }

 private:
  struct Layout;

  explicit NodeRecord(base::Mapping memory) : memory_(std::move(memory)) {}
  Layout* layout() const { return reinterpret_cast<Layout*>(memory_.data()); }  // null: absent

  base::UniqueFd fd_;
  base::Mapping memory_;
  std::unique_ptr<os::CrashNote> crash_note_;  // in memory_
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_HERITAGE_NODE_RECORD_H_
