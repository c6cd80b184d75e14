#include "daemon/service/heritage/node_record.h"

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "proto/shm/types.h"

namespace geminid::service {

struct NodeRecord::Layout {
  uint32_t magic;
  uint32_t version;
  uint64_t devices;
  uint64_t host_capacity_bytes;
  uint64_t device_capacity_bytes[shm::kMaxDevices];
  std::atomic<uint64_t> drained;  // 1: by the operator
  // 1: the last daemon crashed, and the next one has not seen that yet. Zero if an older release
  // wrote this record.
  std::atomic<uint64_t> crashed;
};

namespace {

constexpr uint32_t kMagic = 0x444f4e47;  // "GNOD"
constexpr uint32_t kVersion = 1;

}  // namespace

absl::StatusOr<NodeRecord> NodeRecord::Create(const core::EngineOptions& engine) {
  const uint64_t bytes = base::RoundUpToPage(sizeof(Layout));
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd fd, base::CreateSealedMemfd("geminid-node", bytes));
  GEMINID_ASSIGN_OR_RETURN(base::Mapping memory, base::Mapping::Map(fd, bytes));
  NodeRecord record(std::move(memory));
  Layout* node = record.layout();
  node->version = kVersion;
  node->host_capacity_bytes = engine.host_capacity_bytes;
  node->devices = engine.devices.size();
  for (size_t i = 0; i < engine.devices.size() && i < shm::kMaxDevices; ++i) {
    node->device_capacity_bytes[i] = engine.devices[i].capacity_bytes;
  }
  node->magic = kMagic;
  record.Own(std::move(fd));
  return record;
}

absl::StatusOr<NodeRecord> NodeRecord::Open(const base::UniqueFd& fd) {
  const uint64_t bytes = base::RoundUpToPage(sizeof(Layout));
  if (!fd.valid() || !base::CheckSealed(fd, bytes).ok()) return NodeRecord();
  GEMINID_ASSIGN_OR_RETURN(base::Mapping memory, base::Mapping::Map(fd, bytes));
  NodeRecord record(std::move(memory));
  if (record.layout()->magic != kMagic || record.layout()->version != kVersion) {
    return NodeRecord();
  }
  return record;
}

void NodeRecord::ReplaceHostCapacity(core::EngineOptions* engine) const {
  if (layout() != nullptr) engine->host_capacity_bytes = layout()->host_capacity_bytes;
}

void NodeRecord::ReplaceDeviceCapacities(core::EngineOptions* engine) const {
  if (layout() == nullptr || layout()->devices != engine->devices.size()) return;
  for (size_t i = 0; i < engine->devices.size(); ++i) {
    engine->devices[i].capacity_bytes = layout()->device_capacity_bytes[i];
  }
}

bool NodeRecord::TakeCrashNote() {
  std::atomic<uint64_t>* const note = layout() == nullptr ? nullptr : &layout()->crashed;
  const bool crashed = note != nullptr && note->exchange(0) != 0;
  crash_note_ = std::make_unique<os::CrashNote>(note);
  return crashed;
}

bool NodeRecord::IsDrained() const { return layout() != nullptr && layout()->drained.load() != 0; }

void NodeRecord::NoteDrain(bool drained) {
  if (layout() != nullptr) layout()->drained.store(drained ? 1 : 0);
}

}  // namespace geminid::service
