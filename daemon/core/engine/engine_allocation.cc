// Allocation of chunks, pools and arenas: charges, refusals and releases.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {
namespace {

absl::Status CheckChunkSpec(const ChunkSpec& spec, size_t index) {
  const std::string which = absl::StrCat("chunk ", index, " of the request");
  if (spec.name.size() > kMaxChunkNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(which, " has a name of ", spec.name.size(),
                                                   " bytes; ", kMaxChunkNameBytes, " are allowed"));
  }
  if (spec.kind < ChunkKind::kWeight || spec.kind > shm::kLastChunkKind) {
    return absl::InvalidArgumentError(
        absl::StrCat(which, " has kind ", static_cast<int>(spec.kind), ", which does not exist"));
  }
  if (spec.kind == ChunkKind::kGatheredWeight && spec.has_home) {
    return absl::InvalidArgumentError(
        absl::StrCat(which,
                     " is a gathered weight and asks for a home; gathered weights live on the "
                     "device only: ask for no home"));
  }
  if (spec.kind == ChunkKind::kShared && !spec.has_home) {
    return absl::InvalidArgumentError(
        absl::StrCat(which,
                     " is memory that ranks share and asks for no home; such memory is host "
                     "memory: ask for a home"));
  }
  if (spec.kind == ChunkKind::kOnDisk && spec.has_home) {
    return absl::InvalidArgumentError(
        absl::StrCat(which, " is files on disk and asks for a home; ask for no home"));
  }
  if (spec.bytes == 0 || spec.bytes > shm::kMaxChunkBytes) {
    return absl::InvalidArgumentError(absl::StrCat(which, " has ", base::FormatBytes(spec.bytes),
                                                   "; a chunk has up to ",
                                                   base::FormatBytes(shm::kMaxChunkBytes)));
  }
  return absl::OkStatus();
}

bool IsShared(const ChunkSpec& spec) { return spec.kind == ChunkKind::kShared; }
bool IsOnDisk(const ChunkSpec& spec) { return spec.kind == ChunkKind::kOnDisk; }

// The key of a tenant's quota, and of the count of refusals.
const char* LimitName(Tier tier) {
  if (tier == Tier::kDisk) return "disk";
  return tier == Tier::kHost ? "host_memory" : "device_memory";
}

}  // namespace

absl::Status Engine::CheckSpecs(const Session& session, const std::vector<ChunkSpec>& specs) const {
  if (specs.empty()) return absl::InvalidArgumentError("the request names no chunk");
  const uint64_t there = session.chunk_count + session.promised_chunks;
  if (specs.size() > shm::kMaxChunks - there) {
    return absl::ResourceExhaustedError(
        absl::StrCat("asked for ", specs.size(), " chunks; the session has ", there, " of at most ",
                     shm::kMaxChunks, "; use larger chunks"));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    GEMINID_RETURN_IF_ERROR(CheckChunkSpec(specs[i], i));
    if (IsShared(specs[i]) != IsShared(specs[0])) {
      return absl::InvalidArgumentError(
          "the request has memory that ranks share beside other chunks; request that memory by "
          "itself");
    }
    if (IsOnDisk(specs[i]) && specs.size() > 1) {
      return absl::InvalidArgumentError(
          "the request has files on disk beside other chunks; request them by themselves");
    }
  }
  return absl::OkStatus();
}

Holder Engine::TopHolder(Account account) const {
  Holder top;
  for (const auto& [id, session] : sessions_) {
    if (session->is_ending()) continue;
    if (account.tier == Tier::kDevice && session->device != account.device) continue;
    const uint64_t bytes = account.tier == Tier::kHost   ? session->pool_bytes
                           : account.tier == Tier::kDisk ? session->disk_bytes
                                                         : session->arena_bytes();
    if (bytes <= top.bytes) continue;
    top = {session->spec.job, session->spec.rank, bytes};
  }
  return top;
}

// Bytes that sessions gave up, by ending or by giving memory back, and that still exist.
uint64_t Engine::ReturningBytes(Account account) const {
  uint64_t bytes = 0;
  for (const auto& [id, charge] : charges_) {
    if (charge.session == kNoSession && charge.account == account) bytes += charge.bytes;
  }
  for (const auto& [id, session] : sessions_) {
    if (!session->is_ending()) continue;
    if (account == kHostAccount) bytes += session->pool_bytes;
    if (account == kDiskAccount) bytes += session->disk_bytes;
    if (account == session->device_account()) bytes += session->arena_bytes();
  }
  return bytes;
}

// Names a device on which the arena would fit; empty: there is none.
std::string Engine::AdviseOtherDevice(Account account, uint64_t bytes) const {
  if (account.tier != Tier::kDevice) return "";
  for (const DeviceDescription& device : options_.devices) {
    const uint64_t free_bytes = ledger_.Totals(DeviceAccount(device.index)).free_bytes;
    if (free_bytes < bytes) continue;
    return absl::StrCat("use device ", shm::Value(device.index), " (",
                        base::FormatBytes(free_bytes), " free), ");
  }
  return "";
}

absl::Status Engine::Refuse(const Session& session, Account account, uint64_t bytes) {
  const std::string& tenant = session.spec.tenant;
  limits_.CountRefusal(LimitName(account.tier), tenant);
  const AccountTotals totals = ledger_.Totals(account);
  const Room room = jobs_.RoomFor(session.id);
  const uint64_t left = room.LeftByOthers(tenant, account);
  const uint64_t tenant_free = room.LeftOfLimit(tenant, account);
  Refusal refusal{.account = account, .asked_bytes = bytes, .top_holder = TopHolder(account)};
  refusal.returning_bytes = ReturningBytes(account);
  refusal.free_bytes = std::min(left, tenant_free);
  // Pools and arenas are separate files: whatever is free is free in one piece.
  refusal.largest_hole_bytes = refusal.free_bytes;
  const bool of_host = account.tier == Tier::kHost;
  // Without other jobs and guarantees, all promised memory is that of this job's ranks.
  const bool alone =
      quota_.GuaranteedTenants().empty() && std::ranges::all_of(sessions_, [&](const auto& one) {
        return one.second->spec.job == session.spec.job && one.second->spec.tenant == tenant;
      });
  const std::string configure =
      absl::StrCat("raise ", of_host ? "host_memory" : "device_memory (or the device's line)",
                   " in the daemon's configuration");
  if (tenant_free < left) {
    refusal.limit = absl::StrCat("tenant ", tenant, " may have ",
                                 base::FormatBytes(quota_.LimitBytes(tenant, account)));
    refusal.advice = absl::StrCat(alone ? "" : absl::StrCat("end another job of ", tenant, ", "),
                                  "ask for less, or raise ", LimitName(account.tier),
                                  " of its quota in the daemon's configuration");
  } else if (left < totals.free_bytes) {
    refusal.limit =
        absl::StrCat("of ", base::FormatBytes(totals.free_bytes), " free, ",
                     base::FormatBytes(totals.free_bytes - left),
                     alone ? " are promised to the other ranks of this job"
                           : " are promised to other jobs or guaranteed to other tenants");
    refusal.advice = alone ? absl::StrCat("use fewer ranks, ask for less, or ", configure)
                           : "end another job, ask for less, or wait in the queue";
  } else {
    refusal.limit =
        absl::StrCat("the daemon may hand out ", base::FormatBytes(totals.capacity_bytes));
    refusal.advice = absl::StrCat(alone ? "" : "end another job, ", "ask for less, ",
                                  AdviseOtherDevice(account, bytes), "or ", configure);
  }
  return ToStatus(refusal);
}

absl::Status Engine::ChargeMemory(const Session& session, Account account, uint64_t bytes) {
  const std::string& tenant = session.spec.tenant;
  if (jobs_.AvailableBytes(session.id, tenant, account) < bytes ||
      !quota_.TryCharge(tenant, account, bytes)) {
    return Refuse(session, account, bytes);
  }
  if (!ledger_.HandOut(account, bytes).ok()) {
    quota_.Return(tenant, account, bytes).IgnoreError();  // charged just now
    return Refuse(session, account, bytes);
  }
  jobs_.Charged(session.id, account, bytes);
  return absl::OkStatus();
}

// The session no longer has the memory. Its tenant stays charged until the shell calls GiveBack.
void Engine::ReleaseMemory(const Session& session, Account account, uint64_t bytes,
                           Releases* releases) {
  releases->charges.push_back(charges_.Add(
      {.tenant = session.spec.tenant, .account = account, .bytes = bytes, .holder = session.id}));
}

// The bytes were charged before, so nothing is refused; Check() would report a wrong sum.
void Engine::GiveBack(ChargeId id) {
  Charge* charge = charges_.Find(id);
  if (charge == nullptr) return;
  Void(charge);
  ledger_.TakeBack(charge->account, charge->bytes).IgnoreError();
  quota_.Return(charge->tenant, charge->account, charge->bytes).IgnoreError();
  jobs_.Returned(charge->holder, charge->account, charge->bytes);
  charges_.End(id);
}

// No session waits for the charge's memory any more.
void Engine::Void(Charge* charge) {
  if (charge->session == kNoSession) return;
  limits_.GiveChunks(charge->tenant, charge->promised_chunks());
  if (Session* session = Find(charge->session); session != nullptr) {
    session->promised_chunks -= charge->promised_chunks();
    if (charge->account.tier == Tier::kDevice) session->arena_promised = false;
    const auto pool = session->pools.find(charge->allocation.pool);
    if (pool != session->pools.end()) pool->second.arriving = false;
  }
  charge->session = kNoSession;
  charge->specs.clear();
  charge->entered = 0;
}

// Also releases a pool whose allocation ends before its first chunk was entered.
void Engine::VoidPromises(Session* session, Releases* releases) {
  for (auto& [id, charge] : charges_) {
    if (charge.session != session->id) continue;
    Void(&charge);
    const auto pool = session->pools.find(charge.allocation.pool);
    if (pool != session->pools.end() && pool->second.chunks == 0) {
      ReleasePool(session, pool->first, releases);
    }
  }
}

absl::StatusOr<Promise> Engine::BeginArena(SessionId id, uint64_t bytes) {
  GEMINID_ASSIGN_OR_RETURN(Session* const session, FindAttached(id));
  GEMINID_RETURN_IF_ERROR(CheckAdmitted(*session, /*arena=*/true));
  if (session->arena.has_value() || session->arena_promised) {
    return absl::FailedPreconditionError(
        absl::StrCat("the session has an arena of ", base::FormatBytes(session->arena_bytes()),
                     " already, or is getting one; a session has one arena, sized at the start"));
  }
  if (bytes == 0 || bytes > shm::kMaxArenaBytes) {
    return absl::InvalidArgumentError(absl::StrCat("device memory of ", base::FormatBytes(bytes),
                                                   "; a session can have up to ",
                                                   base::FormatBytes(shm::kMaxArenaBytes)));
  }
  const DeviceDescription& device = options_.devices[shm::Value(session->device)];
  const uint64_t rounded = base::RoundUp(bytes, device.granularity_bytes);
  GEMINID_RETURN_IF_ERROR(ChargeMemory(*session, session->device_account(), rounded));
  session->arena_promised = true;
  return Promise{.charge = charges_.Add({.tenant = session->spec.tenant,
                                         .account = session->device_account(),
                                         .bytes = rounded,
                                         .session = id,
                                         .holder = id}),
                 .bytes = rounded};
}

absl::Status Engine::FinishArena(ChargeId id) {
  GEMINID_ASSIGN_OR_RETURN(Charge* const charge, charges_.FindPromise(id));
  Session* session = Find(charge->session);
  session->arena.emplace(charge->bytes, shm::kSlotBytes);
  if (session->books.has_value()) session->books->SetArena(charge->bytes);
  session->arena_promised = false;
  charges_.End(id);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Engine::CreateArena(SessionId id, uint64_t bytes) {
  GEMINID_ASSIGN_OR_RETURN(Promise promise, BeginArena(id, bytes));
  GEMINID_RETURN_IF_ERROR(FinishArena(promise.charge));
  return promise.bytes;
}

uint64_t Engine::PoolBytes(uint64_t bytes) const {
  const uint64_t huge = options_.huge_page_bytes;
  const bool in_huge_pages = huge > 0 && bytes / huge >= kHugePagesOfPool;
  return in_huge_pages ? base::RoundUp(bytes, huge) : base::RoundUpToPage(bytes);
}

absl::StatusOr<Promise> Engine::BeginAllocation(SessionId id, std::vector<ChunkSpec> specs,
                                                uint64_t number) {
  GEMINID_ASSIGN_OR_RETURN(Session* const session, FindAttached(id));
  GEMINID_RETURN_IF_ERROR(CheckAdmitted(*session, /*arena=*/false));
  GEMINID_RETURN_IF_ERROR(CheckSpecs(*session, specs));

  // No overflow: 2^16 chunks of 2^40 bytes.
  Allocation allocation;
  uint64_t disk_bytes = 0;
  uint64_t end = 0;
  for (const ChunkSpec& spec : specs) {
    allocation.home_offsets.push_back(spec.has_home ? end : 0);
    if (spec.has_home) end += base::RoundUp(spec.bytes, kHomeAlignmentBytes);
    if (IsOnDisk(spec)) disk_bytes += spec.bytes;
  }
  const bool is_elsewhere = IsShared(specs.front());
  allocation.pool_bytes = is_elsewhere ? base::RoundUpToPage(end) : PoolBytes(end);
  GEMINID_RETURN_IF_ERROR(limits_.TakeChunks(session->spec.tenant, specs.size()));
  const Account account = disk_bytes > 0 ? kDiskAccount : kHostAccount;
  const uint64_t bytes = disk_bytes > 0 ? disk_bytes : allocation.pool_bytes;
  if (bytes > 0) {
    absl::Status status = ChargeMemory(*session, account, bytes);
    if (!status.ok()) {
      limits_.GiveChunks(session->spec.tenant, specs.size());
      return status;
    }
  }
  if (end > 0) allocation.pool = manifest_.NewPoolId();
  session->promised_chunks += specs.size();
  Promise promise{
      .pool = allocation.pool, .bytes = allocation.pool_bytes, .is_elsewhere = is_elsewhere};
  promise.charge = charges_.Add({.tenant = session->spec.tenant,
                                 .account = account,
                                 .bytes = bytes,
                                 .session = id,
                                 .holder = id,
                                 .specs = std::move(specs),
                                 .allocation = std::move(allocation),
                                 .number = number});
  return promise;
}

// The pool's bytes belong to the session from now on.
void Engine::EnterPool(Session* session, Charge* charge) {
  const Allocation& allocation = charge->allocation;
  if (allocation.pool == kNoPool || charge->bytes == 0) return;
  session->pools[allocation.pool] = {.bytes = allocation.pool_bytes, .arriving = true};
  session->pool_bytes += allocation.pool_bytes;
  charge->bytes = 0;
}

absl::StatusOr<std::optional<Allocation>> Engine::ContinueAllocation(ChargeId id, size_t most) {
  GEMINID_ASSIGN_OR_RETURN(Charge* const found, charges_.FindPromise(id));
  Charge& charge = *found;
  Session* session = Find(charge.session);
  Allocation& allocation = charge.allocation;
  EnterPool(session, &charge);
  const size_t end = charge.entered + std::min<size_t>(most, charge.promised_chunks());
  for (; charge.entered < end; ++charge.entered) {
    ChunkSpec& spec = charge.specs[charge.entered];
    const PoolId pool = spec.has_home ? allocation.pool : kNoPool;
    const uint64_t offset = allocation.home_offsets[charge.entered];
    allocation.chunks.push_back(AddChunk(session, std::move(spec), pool, offset, charge.number));
    session->promised_chunks -= 1;
  }
  if (charge.promised_chunks() > 0) return std::nullopt;
  const auto pool = session->pools.find(allocation.pool);
  if (pool != session->pools.end()) pool->second.arriving = false;
  Allocation done = std::move(allocation);
  charges_.End(id);
  return done;
}

absl::StatusOr<Allocation> Engine::FinishAllocation(ChargeId id) {
  absl::StatusOr<std::optional<Allocation>> allocation = ContinueAllocation(id, shm::kMaxChunks);
  if (!allocation.ok()) return allocation.status();
  return **std::move(allocation);
}

absl::StatusOr<Allocation> Engine::Allocate(SessionId id, const std::vector<ChunkSpec>& specs) {
  GEMINID_ASSIGN_OR_RETURN(Promise promise, BeginAllocation(id, specs));
  return FinishAllocation(promise.charge);
}

ChunkId Engine::AddChunk(Session* session, ChunkSpec spec, PoolId pool, uint64_t offset,
                         uint64_t allocation) {
  uint32_t number = static_cast<uint32_t>(session->chunks.size());
  if (session->free_numbers.empty()) {
    session->chunks.emplace_back();
    session->generations.push_back(0);
  } else {
    number = session->free_numbers.top();
    session->free_numbers.pop();
  }
  auto chunk = std::make_unique<Chunk>();
  chunk->id = ChunkId{number};
  chunk->name = std::move(spec.name);
  chunk->kind = spec.kind;
  chunk->bytes = spec.bytes;
  chunk->pool = pool;
  chunk->home_offset = offset;
  if (session->books.has_value()) session->books->SetName(chunk->id, chunk->name);
  // A pool reads as zeros, so a home is valid from the start.
  const ChunkStatus status{
      .valid = chunk->has_home() ? ValidLocation::kHome : ValidLocation::kNowhere,
      .generation = session->generations[number]};
  // Cannot fail: the limit of chunks is the number of records.
  chunk->record = *manifest_.Add({.session = session->id,
                                  .chunk = chunk->id,
                                  .kind = chunk->kind,
                                  .bytes = chunk->bytes,
                                  .pool = pool,
                                  .home_offset = offset},
                                 status, allocation);
  if (chunk->has_home()) {
    Pool& home = session->pools[pool];
    home.in_use_bytes += chunk->bytes;
    home.chunks += 1;
    ledger_.Occupy(kHostAccount, session->id, chunk->kind, chunk->bytes).IgnoreError();
  }
  if (chunk->is_on_disk()) {
    session->disk_bytes += chunk->bytes;
    ledger_.Occupy(kDiskAccount, session->id, chunk->kind, chunk->bytes).IgnoreError();
  }
  Touch(session, chunk.get());
  session->chunks[number] = std::move(chunk);
  session->chunk_count += 1;
  tables_->PublishState(session->id, ChunkId{number}, status.Published());
  return ChunkId{number};
}

absl::StatusOr<std::vector<ChunkId>> Engine::MadeBy(SessionId id, uint64_t first,
                                                    uint64_t last) const {
  GEMINID_ASSIGN_OR_RETURN(Session* const session, FindAttached(id));
  std::vector<ChunkId> made;
  for (const auto& chunk : session->chunks) {
    if (chunk == nullptr) continue;
    const uint64_t number = manifest_.AllocationOf(chunk->record);
    if (first <= number && number <= last) made.push_back(chunk->id);
  }
  return made;
}

absl::Status Engine::CheckFreeable(const Session& session,
                                   const std::vector<ChunkId>& sorted) const {
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return absl::InvalidArgumentError("a chunk is named twice");
  }
  for (const ChunkId id : sorted) {
    const Chunk* chunk = session.Find(id);
    if (chunk == nullptr) {
      return absl::NotFoundError(absl::StrCat("the session has no chunk ", shm::Index(id)));
    }
    if (chunk->pins + chunk->home_uses > 0) {
      return absl::FailedPreconditionError(absl::StrCat("chunk \"", chunk->name, "\" is in ",
                                                        chunk->pins + chunk->home_uses,
                                                        " transfers; wait until they are done"));
    }
    const auto pool = session.pools.find(chunk->pool);
    if (pool != session.pools.end() && pool->second.arriving) {
      return absl::FailedPreconditionError(
          absl::StrCat("chunk \"", chunk->name, "\" is being allocated; wait for the answer"));
    }
  }
  return absl::OkStatus();
}

absl::Status Engine::CheckFree(SessionId id, const std::vector<ChunkId>& chunks) const {
  GEMINID_ASSIGN_OR_RETURN(Session* const session, FindAttached(id));
  GEMINID_RETURN_IF_ERROR(CheckFreeable(*session, chunks));
  for (const ChunkId chunk_id : chunks) {
    const Chunk& chunk = *session->Find(chunk_id);
    if (StatusOf(chunk).residency != shm::Residency::kResident) continue;
    if (!IsLeased(*session, chunk)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("chunk \"", chunk.name, "\" is leased; release it first"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Releases> Engine::Free(SessionId id, const std::vector<ChunkId>& chunks) {
  GEMINID_ASSIGN_OR_RETURN(Session* const session, FindAttached(id));
  std::vector<ChunkId> sorted = chunks;
  std::sort(sorted.begin(), sorted.end());
  GEMINID_RETURN_IF_ERROR(CheckFreeable(*session, sorted));
  // First no chunk can be leased any more, then the first one is freed.
  std::vector<Chunk*> pending;
  for (const ChunkId chunk_id : sorted) {
    Chunk* chunk = session->Find(chunk_id);
    if (StatusOf(*chunk).residency != shm::Residency::kResident) continue;
    if (BeginEvict(session, chunk)) {
      pending.push_back(chunk);
      continue;
    }
    for (Chunk* other : pending) CancelEvict(session, other);
    return absl::FailedPreconditionError(
        absl::StrCat("chunk \"", chunk->name, "\" is leased; release it first"));
  }
  Releases releases;
  for (const ChunkId chunk : sorted) FreeChunk(session, chunk, &releases);
  return releases;
}

void Engine::ReleasePool(Session* session, PoolId id, Releases* releases) {
  const auto pool = session->pools.find(id);
  ReleaseMemory(*session, kHostAccount, pool->second.bytes, releases);
  session->pool_bytes -= pool->second.bytes;
  releases->pools.push_back({session->id, id});
  session->pools.erase(pool);
}

void Engine::FreeChunk(Session* session, ChunkId id, Releases* releases) {
  Chunk* chunk = session->Find(id);
  if (StatusOf(*chunk).residency != shm::Residency::kAbsent) RemoveExtent(session, chunk);
  const uint32_t generation = StatusOf(*chunk).generation;
  tables_->PublishState(session->id, id, shm::StateWord{.generation = generation}.Encode());
  manifest_.Remove(chunk->record);
  limits_.GiveChunks(session->spec.tenant, 1);
  if (chunk->has_home()) {
    ledger_.Vacate(kHostAccount, session->id, chunk->kind, chunk->bytes).IgnoreError();
    const auto pool = session->pools.find(chunk->pool);
    pool->second.in_use_bytes -= chunk->bytes;
    pool->second.chunks -= 1;
    if (pool->second.chunks == 0) ReleasePool(session, chunk->pool, releases);
  }
  if (chunk->is_on_disk()) {
    ledger_.Vacate(kDiskAccount, session->id, chunk->kind, chunk->bytes).IgnoreError();
    session->disk_bytes -= chunk->bytes;
    ReleaseMemory(*session, kDiskAccount, chunk->bytes, releases);
  }
  session->generations[shm::Index(id)] = generation;
  session->chunks[shm::Index(id)].reset();
  session->free_numbers.push(shm::Index(id));
  session->chunk_count -= 1;
  session->plan_uses.erase(id);
}

}  // namespace geminid::core
