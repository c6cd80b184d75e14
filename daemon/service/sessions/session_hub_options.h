// The options of a SessionHub.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_HUB_OPTIONS_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_HUB_OPTIONS_H_

#include <cstdint>

#include "daemon/core/engine/engine.h"
#include "daemon/gpus/gpus.h"
#include "daemon/holder/descriptor_store.h"
#include "daemon/memory/host_pool.h"
#include "daemon/os/machine.h"
#include "daemon/service/heritage/shortage.h"
#include "daemon/service/tenants/limits.h"
#include "proto/shm/types.h"

namespace geminid::service {

struct SessionHubOptions {
  core::EngineOptions engine;
  gpus::Gpus* gpus = nullptr;  // outlives the hub; null: no device is a GPU
  // Capacities that nobody chose: an earlier daemon's may replace them.
  bool host_capacity_is_default = false;
  bool device_capacities_are_default = false;
  // The descriptor store, for the next daemon; null: sessions end with the daemon. Outlives the
  // hub.
  holder::DescriptorStore* store = nullptr;
  Limits* limits = nullptr;  // outlives the hub
  os::Machine machine;
  const os::Numa* numa = &os::SystemNuma();        // outlives the hub
  uint32_t chunk_records = 4 * shm::kMaxChunks;    // of all sessions: 128 bytes each
  uint64_t plan_memory_bytes = uint64_t{1} << 30;  // for plans and traces, of all sessions
  bool huge_pages = false;
  memory::PageBacking arena_backing = memory::PageBacking::kPopulated;
  uint64_t daemon_epoch = 0;
  Shortage::Pause pause = nullptr;  // while the system lacks resources; null: sleeps
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_HUB_OPTIONS_H_
