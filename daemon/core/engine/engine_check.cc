// Recomputes everything that can be recomputed, and compares.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/core/engine/engine.h"
#include "daemon/core/engine/engine_state.h"

namespace geminid::core {
namespace {

using shm::Residency;

absl::Status Wrong(SessionId session, const std::string& what) {
  return absl::InternalError(absl::StrCat("session ", shm::Value(session), ": ", what));
}

}  // namespace

absl::Status Engine::CheckChunk(const Session& session, const Chunk& chunk) const {
  const std::string name = absl::StrCat("chunk ", shm::Index(chunk.id), " ");
  const ChunkStatus status = StatusOf(chunk);
  const ChunkIdentity identity = manifest_.Identity(chunk.record);
  if (identity.session != session.id || identity.chunk != chunk.id ||
      identity.bytes != chunk.bytes || identity.kind != chunk.kind || identity.pool != chunk.pool ||
      identity.home_offset != chunk.home_offset) {
    return Wrong(session.id, name + "differs from its record");
  }
  const bool resident = status.residency == Residency::kResident;
  if (!resident && status.residency != Residency::kAbsent &&
      status.residency != Residency::kFilling) {
    return Wrong(session.id, absl::StrCat(name, "rests in ", shm::Name(status.residency)));
  }
  const ValidLocation expected = ValidOf(chunk, status);
  if (status.valid != expected) {
    return Wrong(session.id,
                 absl::StrCat(name, "is valid ", Name(status.valid), ", not ", Name(expected)));
  }
  if (status.dirty && (!resident || !chunk.has_home())) {
    return Wrong(session.id, name + "is dirty without a device copy and a home");
  }
  if (chunk.pins > 0 && status.residency == Residency::kAbsent) {
    return Wrong(session.id, name + "has transfers and no device copy");
  }
  if (chunk.inbound > chunk.pins || (chunk.inbound > 0 && resident)) {
    return Wrong(session.id, name + "is written while it can be leased");
  }
  if (chunk.home_writes > chunk.home_uses || chunk.home_writes > chunk.tickets_into) {
    return Wrong(session.id, name + "has a home that no transfer is writing");
  }
  const bool departs = chunk.eviction_entry.has_value();
  if (departs != MayLeave(chunk, status) ||
      (departs && !session.eviction_order.Contains(*chunk.eviction_entry))) {
    return Wrong(session.id, name + "waits for eviction and cannot be evicted, or the reverse");
  }
  if ((manifest_.Transfer(chunk.record) != kNoTicket) != (chunk.tickets_into > 0)) {
    return Wrong(session.id, name + "and its record disagree about a ticket");
  }
  return absl::OkStatus();
}

// The arena's extents are those of the chunks on the device, one each, and none overlaps.
absl::Status Engine::CheckExtents(const Session& session) const {
  std::vector<Extent> extents;
  if (session.arena.has_value()) extents = session.arena->Extents();
  uint64_t used_bytes = 0;
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    const Chunk* owner = session.Find(extent.owner);
    if (owner == nullptr || StatusOf(*owner).residency == Residency::kAbsent ||
        StatusOf(*owner).device_offset() != extent.offset ||
        extent.bytes != session.arena->RoundUp(owner->bytes)) {
      return Wrong(session.id, absl::StrCat("the extent at ", extent.offset, " has no owner"));
    }
    if (extent.offset < end) return Wrong(session.id, "two extents overlap");
    end = extent.end();
    used_bytes += extent.bytes;
  }
  if (session.arena.has_value() &&
      (end > session.arena->limit_bytes() || used_bytes != session.arena->used_bytes())) {
    return Wrong(session.id, "extents exceed the arena, or do not add up");
  }
  const auto on_device = std::count_if(
      session.chunks.begin(), session.chunks.end(), [this](const std::unique_ptr<Chunk>& chunk) {
        return chunk != nullptr && StatusOf(*chunk).residency != Residency::kAbsent;
      });
  if (static_cast<size_t>(on_device) != extents.size()) {
    return Wrong(session.id, "a chunk on the device has no extent");
  }
  return absl::OkStatus();
}

absl::Status Engine::CheckSession(const Session& session) const {
  uint64_t chunks = 0;
  uint64_t touches = 0;
  uint64_t eviction_order = 0;
  uint64_t disk_bytes = 0;
  std::map<PoolId, Pool> pools;
  std::map<std::pair<Account, ChunkKind>, uint64_t> lines;
  for (const auto& chunk : session.chunks) {
    if (chunk == nullptr) continue;
    GEMINID_RETURN_IF_ERROR(CheckChunk(session, *chunk));
    chunks += 1;
    eviction_order += chunk->eviction_entry.has_value() ? 1 : 0;
    touches += chunk->pins + chunk->home_uses;
    if (chunk->has_home()) {
      pools[chunk->pool].in_use_bytes += chunk->bytes;
      pools[chunk->pool].chunks += 1;
      lines[{kHostAccount, chunk->kind}] += chunk->bytes;
    }
    if (chunk->is_on_disk()) {
      disk_bytes += chunk->bytes;
      lines[{kDiskAccount, chunk->kind}] += chunk->bytes;
    }
    if (StatusOf(*chunk).residency != Residency::kAbsent) {
      lines[{session.device_account(), chunk->kind}] += chunk->bytes;
    }
  }
  const bool kept = session.state == SessionState::kKept;
  if (kept && session.books.has_value() && !session.books->KeptUntil().has_value()) {
    return Wrong(session.id, "its books say that it has a client");
  }
  if (chunks != session.chunk_count) return Wrong(session.id, "the chunk count is wrong");
  uint64_t pool_bytes = 0;
  for (const auto& [id, pool] : session.pools) pool_bytes += pool.bytes;
  if (pool_bytes != session.pool_bytes) return Wrong(session.id, "the pools do not add up");
  if (disk_bytes != session.disk_bytes) return Wrong(session.id, "its files do not add up");
  if (eviction_order != session.eviction_order.size())
    return Wrong(session.id, "a chunk left twice");
  // Each transfer touches one device copy and one home.
  uint64_t transfers = scheduler_.QueuedCount(session.id);
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    transfers += scheduler_.FlightOf(session.id, direction).tickets;
  }
  // While the session is being closed, its transfers have ended, but some chunks still count them.
  if (touches != 2 * transfers && !session.closed_chunks.has_value())
    return Wrong(session.id, "pins and transfers do not agree");
  for (const auto& [id, pool] : session.pools) {
    if (pools[id].in_use_bytes != pool.in_use_bytes || pools[id].chunks != pool.chunks ||
        pool.in_use_bytes > pool.bytes) {
      return Wrong(session.id, absl::StrCat("pool ", shm::Value(id), " does not add up"));
    }
  }
  for (const LedgerLine& line : ledger_.Lines()) {
    if (line.session != session.id) continue;
    const auto found = lines.find({line.account, line.kind});
    if (found == lines.end() || found->second != line.bytes) {
      return Wrong(session.id, "a line of the ledger is not the sum of its chunks");
    }
    lines.erase(found);
  }
  if (!lines.empty()) return Wrong(session.id, "chunks are missing in the ledger");
  return CheckExtents(session);
}

absl::Status Engine::Check() const {
  for (const auto& [id, session] : sessions_) {
    GEMINID_RETURN_IF_ERROR(CheckSession(*session));
  }
  return CheckSums();
}

absl::Status Engine::CheckSome(size_t chunks, ChunkPlace* next) const {
  for (auto it = sessions_.lower_bound(next->session); it != sessions_.end(); ++it) {
    const Session& session = *it->second;
    for (size_t i = it->first == next->session ? shm::Index(next->chunk) : 0;
         i < session.chunks.size(); ++i) {
      if (chunks-- == 0) {
        *next = {it->first, ChunkId{static_cast<uint32_t>(i)}};
        return CheckSums();
      }
      if (session.chunks[i] == nullptr) continue;
      GEMINID_RETURN_IF_ERROR(CheckChunk(session, *session.chunks[i]));
    }
  }
  *next = {};
  return CheckSums();
}

absl::Status Engine::CheckSums() const {
  GEMINID_RETURN_IF_ERROR(ledger_.Check());
  uint64_t chunks = 0;
  std::map<Account, uint64_t> handed_out;
  std::map<std::pair<std::string, Account>, uint64_t> charged;
  uint64_t promised = 0;
  uint64_t promised_to = 0;
  for (const auto& [id, charge] : charges_) {
    handed_out[charge.account] += charge.bytes;
    charged[{charge.tenant, charge.account}] += charge.bytes;
    promised += charge.promised_chunks();
  }
  for (const auto& [id, session] : sessions_) {
    chunks += session->chunk_count;
    promised_to += session->promised_chunks;
    const std::string& tenant = session->spec.tenant;
    const Account device = session->device_account();
    handed_out[kHostAccount] += session->pool_bytes;
    handed_out[device] += session->arena_bytes();
    handed_out[kDiskAccount] += session->disk_bytes;
    charged[{tenant, kHostAccount}] += session->pool_bytes;
    charged[{tenant, device}] += session->arena_bytes();
    charged[{tenant, kDiskAccount}] += session->disk_bytes;
  }
  if (promised != promised_to || limits_.chunks().used() != chunks + promised ||
      limits_.sessions().used() != sessions_.size()) {
    return absl::InternalError("the limits of sessions and chunks do not add up");
  }
  if (chunks != manifest_.used_records()) {
    return absl::InternalError("the manifest's records are not the chunks");
  }
  for (const Account& account : ledger_.Accounts()) {
    const AccountTotals totals = ledger_.Totals(account);
    if (totals.in_use_bytes + totals.reserved_bytes != handed_out[account]) {
      return absl::InternalError(absl::StrCat(Name(account), ": handed out are ",
                                              handed_out[account],
                                              " bytes, not what the ledger says"));
    }
  }
  for (const auto& [key, bytes] : charged) {
    if (quota_.ChargedBytes(key.first, key.second) != bytes) {
      return absl::InternalError(absl::StrCat("tenant ", key.first, " is charged wrongly"));
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::core
