// The engine's snapshots as messages for the operator.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SNAPSHOT_MESSAGES_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SNAPSHOT_MESSAGES_H_

#include "daemon/core/engine/engine.h"
#include "daemon/gpus/gpu_agent.h"
#include "daemon/service/sessions/client_session.h"
#include "geminid/v1/admin.pb.h"
#include "geminid/v1/memory.pb.h"
#include "proto/shm/host_registration.h"

namespace geminid::service {

v1::DeviceDescription DeviceMessage(const core::DeviceDescription& device);
v1::GpuInfo GpuMessage(shm::DeviceIndex device, const gpus::AgentReading& reading);
v1::Ledger LedgerMessage(const core::Engine& engine);
v1::ChunkInfo ChunkMessage(const core::ChunkSnapshot& chunk);
v1::SessionInfo SessionMessage(const core::SessionSnapshot& snapshot, const ClientNumbers& client,
                               const PlanNumbers& plan, core::Time now);
v1::HostRegistration RegistrationMessage(const core::SessionSnapshot& snapshot,
                                         const shm::HostRegistration& registration);
// `session` holds the pool's memory; null when it is not made yet.
v1::PoolInfo PoolMessage(const core::PoolSnapshot& snapshot, const ClientSession* session);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SNAPSHOT_MESSAGES_H_
