#include "daemon/core/engine/engine.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {
namespace {

std::vector<uint64_t> CapacitiesOf(const std::vector<DeviceDescription>& devices) {
  std::vector<uint64_t> bytes;
  for (const DeviceDescription& device : devices) bytes.push_back(device.capacity_bytes);
  return bytes;
}

absl::Status CheckSpec(const SessionSpec& spec) {
  if (spec.tenant.empty() || spec.job.empty()) {
    return absl::InvalidArgumentError("a session needs a tenant and a job name");
  }
  if (spec.world_size < 1 || spec.rank < 0 || spec.rank >= spec.world_size || spec.local_rank < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", spec.rank, " (local ", spec.local_rank, ") of ", spec.world_size,
                     " is not possible; ranks run from 0 to the world size minus one"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status NoSuchSession(SessionId session) {
  return absl::NotFoundError(
      absl::StrCat("there is no attached session ", shm::Value(session), "; attach first"));
}

const char* Name(SessionState state) {
  switch (state) {
    case SessionState::kAttached:
      return "attached";
    case SessionState::kKept:
      return "kept";
  }
  return "unknown";
}

Engine::Engine(const EngineOptions& options, Tables* tables, Manifest manifest)
    : options_(options),
      tables_(tables),
      manifest_(std::move(manifest)),
      ledger_(CapacitiesOf(options.devices), options.host_capacity_bytes),
      quota_(options.tenants),
      jobs_(&ledger_, &quota_, options.jobs),
      limits_(options.max_sessions, manifest_.record_count()),
      scheduler_(options.transfers, static_cast<uint32_t>(options.devices.size())) {
  scheduler_.NumberTicketsFrom(FirstTicketOf(manifest_.epoch()));
}

Engine::~Engine() = default;

Engine::Session* Engine::Find(SessionId session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second.get();
}

absl::StatusOr<Engine::Session*> Engine::FindAttached(SessionId id) const {
  Session* session = Find(id);
  if (session == nullptr || session->state != SessionState::kAttached) return NoSuchSession(id);
  return session;
}

ChunkStatus Engine::StatusOf(const Chunk& chunk) const { return manifest_.Status(chunk.record); }

ValidLocation Engine::ValidOf(const Chunk& chunk, const ChunkStatus& status) {
  const bool on_device = status.residency == shm::Residency::kResident ||
                         status.residency == shm::Residency::kEvictPending ||
                         status.residency == shm::Residency::kEvicting;
  const bool home_is_valid =
      chunk.has_home() && !status.dirty && !chunk.home_lost && chunk.home_writes == 0;
  if (home_is_valid) return ValidLocation::kHome;
  return on_device ? ValidLocation::kDevice : ValidLocation::kNowhere;
}

void Engine::SetStatus(Session* session, Chunk* chunk, ChunkStatus status) {
  status.valid = ValidOf(*chunk, status);
  const uint64_t before = StatusOf(*chunk).Published();
  manifest_.SetStatus(chunk->record, status);
  if (status.Published() != before) {
    tables_->PublishState(session->id, chunk->id, status.Published());
  }
  UpdateEvictionEntry(session, chunk);
}

void Engine::NoteProgress(const Chunk& chunk) {
  manifest_.SetProgress(chunk.record, {.home_lost = chunk.home_lost,
                                       .publish_when_idle = chunk.publish_when_idle,
                                       .drop_when_idle = chunk.drop_when_idle});
}

// To be called before the chunk is marked dirty.
void Engine::BeginDirtyEpoch(Chunk* chunk) {
  chunk->dirty_epoch += 1;
  chunk->written_back.Clear();
  manifest_.BeginDirtyEpoch(chunk->record, chunk->dirty_epoch);
}

void Engine::SetLimits(const RunningLimits& limits, Time now) {
  quota_.SetLimits(limits.tenants);
  options_.keep_time = limits.keep_time;
  scheduler_.SetLinkLimit(limits.link_bytes_in_flight);
  grants_are_due_ = true;
  jobs_.SetOptions(limits.jobs);
  DecideJobs(now);
  std::set<std::string> sharing;
  for (const auto& [id, session] : sessions_) sharing.insert(session->spec.tenant);
  for (const std::string& tenant : sharing) ShareLinks(tenant);
}

// The ranks of one job are spread by local rank. A single-rank session gets the device with the
// most free bytes; of equals, the one with the fewest sessions, whose arenas may not exist yet.
DeviceIndex Engine::DeviceFor(const SessionSpec& spec) const {
  const int32_t ranks = spec.local_world_size > 0 ? spec.local_world_size : spec.world_size;
  if (spec.device != shm::kAnyDevice || ranks > 1) return spec.device;
  DeviceIndex best = shm::kAnyDevice;
  std::pair<uint64_t, int64_t> most = {0, std::numeric_limits<int64_t>::min()};
  for (const DeviceDescription& device : options_.devices) {
    if (device.capacity_bytes == 0) continue;  // its GPU is missing
    if (unfit_.count(device.index) != 0) continue;
    int64_t sessions = 0;
    for (const auto& [id, session] : sessions_) {
      sessions += session->device == device.index && !session->is_ending() ? 1 : 0;
    }
    const uint64_t free_bytes = ledger_.Totals(DeviceAccount(device.index)).free_bytes;
    const std::pair<uint64_t, int64_t> room = {free_bytes, -sessions};
    if (room <= most) continue;
    most = room;
    best = device.index;
  }
  return best;
}

absl::StatusOr<SessionId> Engine::OpenSession(const SessionSpec& spec, Time now) {
  GEMINID_RETURN_IF_ERROR(CheckSpec(spec));
  GEMINID_ASSIGN_OR_RETURN(const DeviceIndex device,
                           ChooseDevice(options_.devices, DeviceFor(spec), spec.local_rank));
  GEMINID_RETURN_IF_ERROR(limits_.TakeSession(spec.tenant));
  auto session = std::make_unique<Session>();
  session->id = manifest_.NewSessionId();
  session->spec = spec;
  session->device = device;
  session->opened_at = now;
  session->barred = jobs_.drained() && !HasJob(spec.tenant, spec.job);
  scheduler_.AddSession(session->id, session->device, 1, session->spec.tenant);
  const SessionId id = session->id;
  sessions_.emplace(id, std::move(session));
  ShareLinks(spec.tenant);
  ++counters_.sessions_opened;
  return id;
}

absl::StatusOr<DeviceDescription> Engine::DeviceOf(SessionId id) const {
  const Session* session = Find(id);
  if (session == nullptr) return NoSuchSession(id);
  return options_.devices[shm::Value(session->device)];
}

Releases Engine::Tick(Time now, std::vector<Outgoing>* out) {
  Releases releases = BeginTick(now, out);
  CloseAll(&releases);
  return releases;
}

Releases Engine::BeginTick(Time now, std::vector<Outgoing>* out) {
  scheduler_.MarkOverdue(now);
  Releases releases;
  while (!kept_.empty() && kept_.begin()->first <= now) {
    Session* session = Find(kept_.begin()->second);
    counters_.sessions_expired += session->is_ending() ? 0 : 1;
    BeginEnd(session, &releases);
  }
  DecideJobs(now);
  GrantTransfers(now, out);
  grants_are_due_ = false;
  return releases;
}

std::optional<Time> Engine::NextTick() const {
  if (grants_are_due_) return Time();
  std::optional<Time> next = scheduler_.NextTimeout();
  if (!kept_.empty()) next = std::min(next.value_or(kept_.begin()->first), kept_.begin()->first);
  const std::optional<Time> jobs = jobs_.NextDeadline();
  if (jobs.has_value()) next = std::min(next.value_or(*jobs), *jobs);
  return next;
}

absl::StatusOr<PlanUses> SortUses(const NextUseTable& table) {
  PlanUses plan;
  plan.moments = table.moments;
  for (const NextUseTable::Uses& chunk : table.chunks) {
    std::vector<uint32_t> moments = chunk.moments;
    std::sort(moments.begin(), moments.end());
    if (!moments.empty() && moments.back() >= table.moments) {
      return absl::OutOfRangeError(absl::StrCat("the plan uses chunk ", shm::Index(chunk.chunk),
                                                " at moment ", moments.back(), " of ",
                                                table.moments));
    }
    plan.uses[chunk.chunk] = std::move(moments);
  }
  return plan;
}

absl::Status Engine::BeginPlan(SessionId id, PlanUses* plan) {
  GEMINID_ASSIGN_OR_RETURN(Session* const session, FindAttached(id));
  for (const auto& [chunk, moments] : plan->uses) {
    if (session->Find(chunk) != nullptr) continue;
    return absl::NotFoundError(absl::StrCat("the plan names chunk ", shm::Index(chunk),
                                            ", which the session does not have"));
  }
  std::swap(session->plan_moments, plan->moments);
  std::swap(session->plan_uses, plan->uses);
  session->placed_by_plan = false;
  return absl::OkStatus();
}

bool Engine::PlaceByPlan(SessionId id, size_t* next, size_t most) {
  Session* session = Find(id);
  if (session == nullptr) return true;
  const size_t end = *next + std::min(most, session->chunks.size() - *next);
  for (; *next < end; ++*next) {
    Chunk* chunk = session->chunks[*next].get();
    if (chunk != nullptr && chunk->eviction_entry.has_value()) UpdateEvictionEntry(session, chunk);
  }
  if (*next < session->chunks.size()) return false;
  session->placed_by_plan = true;
  return true;
}

absl::Status Engine::SetPlan(SessionId id, const NextUseTable& table) {
  GEMINID_ASSIGN_OR_RETURN(PlanUses plan, SortUses(table));
  GEMINID_RETURN_IF_ERROR(BeginPlan(id, &plan));
  size_t next = 0;
  while (!PlaceByPlan(id, &next, shm::kMaxChunks)) {
  }
  return absl::OkStatus();
}

}  // namespace geminid::core
