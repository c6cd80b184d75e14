#include "daemon/service/sessions/snapshot_messages.h"

#include "absl/strings/str_cat.h"

namespace geminid::service {
namespace {

constexpr double kSecondsPerNanosecond = 1e-9;

template <typename Message>
void SetAccount(const core::Account& account, Message* message) {
  message->set_tier(static_cast<v1::Tier>(account.tier));
  if (account.tier == shm::Tier::kDevice) message->set_device(shm::Value(account.device));
}

}  // namespace

v1::DeviceDescription DeviceMessage(const core::DeviceDescription& device) {
  v1::DeviceDescription message;
  message.set_index(shm::Value(device.index));
  message.set_kind(static_cast<v1::DeviceKind>(device.kind));
  message.set_uuid(shm::ToString(device.uuid));
  message.set_name(device.name);
  if (device.numa_node != shm::kNoNumaNode) message.set_numa_node(device.numa_node);
  message.set_capacity_bytes(device.capacity_bytes);
  message.set_granularity_bytes(device.granularity_bytes);
  return message;
}

namespace {

void SetFaults(const agent::Faults& faults, v1::GpuInfo* message) {
  const auto known = [&](uint32_t bit) { return (faults.known & bit) != 0; };
  if (known(agent::kVolatileErrors)) message->set_uncorrected_errors(faults.volatile_errors);
  if (known(agent::kAggregateErrors)) message->set_uncorrected_errors_ever(faults.aggregate_errors);
  if (known(agent::kRetiredPages)) {
    message->set_retired_pages_pending(faults.retired_pages_pending != 0);
  }
  if (known(agent::kRowRemaps)) {
    message->set_row_remap_pending(faults.row_remap_pending != 0);
    message->set_row_remap_failed(faults.row_remap_failed != 0);
  }
  message->set_xids_watched(known(agent::kXids));
}

}  // namespace

v1::GpuInfo GpuMessage(shm::DeviceIndex device, const gpus::AgentReading& reading) {
  v1::GpuInfo message;
  message.set_device(shm::Value(device));
  message.set_gpu(reading.gpu);
  message.set_agent(agent::Name(reading.state));
  message.set_pid(reading.pid);
  message.set_restarts(reading.restarts);
  message.set_why(reading.why);
  const gpus::Verdict verdict = reading.verdict();
  message.set_health(gpus::Name(verdict.condition));
  for (const std::string& reason : verdict.reasons) message.add_health_reasons(reason);
  for (const auto& [xid, times] : reading.xids.counts()) {
    v1::XidCount* const count = message.add_xids();
    count->set_xid(xid);
    count->set_times(times);
  }
  if (!reading.health.has_value()) return message;
  message.set_total_bytes(reading.health->total_bytes);
  message.set_free_bytes(reading.health->free_bytes);
  message.set_slabs(reading.health->slabs);
  message.set_slab_bytes(reading.health->slab_bytes);
  message.set_has_context(reading.health->has_context != 0);
  SetFaults(reading.health->faults, &message);
  return message;
}

v1::Ledger LedgerMessage(const core::Engine& engine) {
  v1::Ledger message;
  for (const core::Account& account : engine.ledger().Accounts()) {
    const core::AccountTotals totals = engine.ledger().Totals(account);
    v1::TierLedger* line = message.add_tiers();
    SetAccount(account, line);
    line->set_capacity_bytes(totals.capacity_bytes);
    line->set_in_use_bytes(totals.in_use_bytes);
    line->set_reserved_bytes(totals.reserved_bytes);
    line->set_free_bytes(totals.free_bytes);
    line->set_peak_in_use_bytes(totals.peak_in_use_bytes);
  }
  std::map<shm::SessionId, core::SessionSpec> specs;
  for (const core::SessionSnapshot& session : engine.Sessions()) specs[session.id] = session.spec;
  for (const core::LedgerLine& line : engine.ledger().Lines()) {
    v1::LedgerEntry* entry = message.add_entries();
    SetAccount(line.account, entry);
    entry->set_kind(static_cast<v1::ChunkKind>(line.kind));
    entry->set_session(shm::Value(line.session));
    entry->set_job(specs[line.session].job);
    entry->set_rank(specs[line.session].rank);
    entry->set_bytes(line.bytes);
    entry->set_chunks(line.chunks);
  }
  message.set_adds_up(engine.ledger().Check().ok());
  return message;
}

v1::ChunkInfo ChunkMessage(const core::ChunkSnapshot& chunk) {
  v1::ChunkInfo message;
  message.set_session(shm::Value(chunk.identity.session));
  message.set_chunk(shm::Index(chunk.identity.chunk));
  message.set_name(chunk.name);
  message.set_kind(static_cast<v1::ChunkKind>(chunk.identity.kind));
  message.set_bytes(chunk.identity.bytes);
  message.set_state(shm::Name(chunk.status.state));
  message.set_residency(shm::Name(chunk.status.residency));
  message.set_leased(chunk.leased);
  message.set_dirty(chunk.status.dirty);
  message.set_home_offset(chunk.identity.home_offset);
  message.set_pool(shm::Value(chunk.identity.pool));
  message.set_device_offset(chunk.status.device_offset());
  message.set_generation(chunk.status.generation);
  message.set_loads(chunk.loads);
  message.set_drops(chunk.drops);
  return message;
}

v1::SessionInfo SessionMessage(const core::SessionSnapshot& snapshot, const ClientNumbers& client,
                               const PlanNumbers& plan, core::Time now) {
  v1::SessionInfo message;
  message.set_session(shm::Value(snapshot.id));
  message.set_job(snapshot.spec.job);
  message.set_rank(snapshot.spec.rank);
  message.set_world_size(snapshot.spec.world_size);
  message.set_local_rank(snapshot.spec.local_rank);
  message.set_local_world_size(snapshot.spec.local_world_size);
  message.set_device(shm::Value(snapshot.device));
  message.set_uid(snapshot.spec.uid);
  message.set_pid(snapshot.spec.pid);
  message.set_client(snapshot.spec.client);
  message.set_state(core::Name(snapshot.state));
  message.set_tenant(snapshot.spec.tenant);
  message.set_host_bytes(snapshot.host_bytes);
  message.set_device_bytes(snapshot.arena_bytes);
  message.set_device_in_use_bytes(snapshot.device_in_use_bytes);
  message.set_device_workspace_bytes(snapshot.workspace_bytes);
  message.set_step(client.step);
  message.set_disk_file_bytes(client.disk.file_bytes);
  message.set_disk_read_bytes(client.disk.read_bytes);
  message.set_disk_written_bytes(client.disk.written_bytes);
  message.set_moment(snapshot.moment);
  message.set_attached_seconds((now - snapshot.opened_at).seconds());
  if (snapshot.keep_until.has_value()) {
    message.set_kept_seconds_left((*snapshot.keep_until - now).seconds());
  }
  for (int i = 0; i < shm::kStallCauses; ++i) {
    (*message.mutable_stall_seconds())[shm::Name(static_cast<shm::StallCause>(i))] =
        static_cast<double>(client.stall_nanoseconds[static_cast<size_t>(i)]) *
        kSecondsPerNanosecond;
  }
  for (const shm::Direction direction :
       {shm::Direction::kHostToDevice, shm::Direction::kDeviceToHost}) {
    for (int i = 1; i < core::kCauses; ++i) {
      const auto cause = static_cast<shm::TransferCause>(i);
      const uint64_t bytes = snapshot.transfers.At(direction, cause).bytes;
      if (bytes == 0) continue;
      (*message
            .mutable_transfer_bytes())[absl::StrCat(shm::Name(direction), "/", shm::Name(cause))] =
          bytes;
    }
  }
  message.set_planned_transfer_bytes(plan.transfer_bytes);
  message.set_planned_transfer_bytes_lower_bound(plan.transfer_bytes_lower_bound);
  message.set_chunks(snapshot.chunks);
  return message;
}

v1::HostRegistration RegistrationMessage(const core::SessionSnapshot& snapshot,
                                         const shm::HostRegistration& registration) {
  v1::HostRegistration message;
  message.set_session(shm::Value(snapshot.id));
  message.set_tenant(snapshot.spec.tenant);
  message.set_job(snapshot.spec.job);
  message.set_rank(snapshot.spec.rank);
  message.set_device(shm::Value(snapshot.device));
  message.set_bytes(registration.bytes);
  message.set_registered_bytes(registration.registered_bytes);
  message.set_refused_bytes(registration.refused_bytes);
  message.set_pieces(registration.pieces);
  message.set_registered_pieces(registration.registered_pieces);
  message.set_refused_pieces(registration.refused_pieces);
  return message;
}

v1::PoolInfo PoolMessage(const core::PoolSnapshot& snapshot, const ClientSession* session) {
  v1::PoolInfo message;
  message.set_pool(shm::Value(snapshot.pool));
  message.set_session(shm::Value(snapshot.session));
  message.set_tenant(snapshot.tenant);
  SetAccount(snapshot.account, &message);
  message.set_bytes(snapshot.bytes);
  message.set_in_use_bytes(snapshot.in_use_bytes);
  message.set_numa_node(-1);
  if (session == nullptr) return message;
  const auto pool = session->pools.find(snapshot.pool);
  if (pool != session->pools.end()) {
    message.set_numa_node(pool->second.numa_node());
    message.set_huge_pages(pool->second.huge_pages());
    message.set_populate_seconds(pool->second.populate_seconds());
  } else if (snapshot.account.tier == shm::Tier::kDevice && session->arena != nullptr) {
    message.set_populate_seconds(session->arena->populate_seconds());
  }
  return message;
}

}  // namespace geminid::service
