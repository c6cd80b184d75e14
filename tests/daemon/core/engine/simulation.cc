#include "tests/daemon/core/engine/simulation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "proto/shm/lease.h"

namespace geminid::core {
namespace {

using shm::RequestOp;
using shm::Residency;
using shm::ResponseOp;

constexpr uint64_t RoundUpToSlot(uint64_t bytes) { return base::RoundUp(bytes, shm::kSlotBytes); }

bool Has(const shm::Request& request, uint16_t flag) { return (request.flags & flag) != 0; }

bool OnDevice(const shm::StateWord& word) {
  return word.residency != Residency::kNone && word.residency != Residency::kAbsent;
}

}  // namespace

Simulation::Simulation(uint32_t seed) : random_(seed) {
  options_.host_capacity_bytes = kHostBytes;
  const uint64_t devices = 1 + Pick(3);
  for (uint32_t i = 0; i < devices; ++i) {
    options_.devices.push_back(HostDevice(DeviceIndex{i}, (1 + Pick(kMaxSessions)) * kArenaBytes));
  }
  options_.max_sessions = 2 * kMaxSessions;
  options_.keep_time = Duration::Seconds(1);
  options_.tenants = {{.tenant = "small",
                       .host_bytes = kHostBytes / 2,
                       .device_bytes = kMaxSessions * kArenaBytes,
                       .guaranteed_host_bytes = kHostBytes / 4,
                       .max_priority = kPriorities},
                      {.tenant = "large", .max_priority = kPriorities}};
  options_.jobs.gather_time = Duration::Seconds(1);
  options_.jobs.yield_time = Duration::Milliseconds(300);
  options_.jobs.ageing = Duration::Seconds(1);
  options_.transfers.tickets_in_flight = 1 + Pick(4);
  options_.transfers.bytes_in_flight = 4096 << Pick(4);
  options_.transfers.small_bytes_in_flight = options_.transfers.bytes_in_flight / 4;
  if (Chance(30)) options_.transfers.link_bytes_in_flight = 16384;
  options_.transfers.queued_per_session = 1 + Pick(12);
  const uint64_t bytes = base::RoundUpToPage(Manifest::BytesFor(kRecords));
  manifest_ = *base::Mapping::Map(*base::CreateSealedMemfd("manifest", bytes), bytes);
  death_.Watch(manifest_.data(), bytes);
  Manifest manifest = *Manifest::Create(ManifestBytes(), 1);
  engine_ = std::make_unique<Engine>(options_, static_cast<Tables*>(this), std::move(manifest));
}

Simulation::~Simulation() = default;

std::span<std::byte> Simulation::ManifestBytes() const {
  return {manifest_.data(), Manifest::BytesFor(kRecords)};
}

void Simulation::Violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

Simulation::SessionModel* Simulation::PickSession(bool kept) {
  std::vector<SessionModel*> candidates;
  for (auto& [id, session] : sessions_) {
    if (session.kept == kept) candidates.push_back(&session);
  }
  return candidates.empty() ? nullptr : candidates[Pick(candidates.size())];
}

Simulation::ChunkModel* Simulation::FindChunk(SessionModel* session, ChunkId chunk) {
  if (shm::Index(chunk) >= kMaxChunks || !session->chunks[shm::Index(chunk)].exists) return nullptr;
  return &session->chunks[shm::Index(chunk)];
}

// --- tables --------------------------------------------------------------------------------------

void Simulation::MayCrash() {
  if (crash_in_ < 0) return;
  --crash_in_;
  if (crash_in_ < 0) throw Crash();
}

void Simulation::PublishState(SessionId id, ChunkId chunk_id, uint64_t word) {
  MayCrash();
  const auto session = sessions_.find(id);
  if (session == sessions_.end() || shm::Index(chunk_id) >= kMaxChunks) {
    return Violate("a word was published for nobody");
  }
  ChunkModel& chunk = session->second.chunks[shm::Index(chunk_id)];
  const shm::StateWord next = shm::StateWord::Decode(word);
  CheckStep(chunk, next, session->second.leaving);
  if (next.residency == Residency::kEvicting) ++counts_.evictions;
  if (next.residency == Residency::kResident && chunk.word.residency == Residency::kEvictPending) {
    ++counts_.cancelled_evictions;
  }
  chunk.word = next;
  if (next.residency == Residency::kFilling) CheckExtents(session->second);
  if (next.residency == Residency::kAbsent) chunk.dirty = false;
  // The device copy is the only copy.
  if (next.residency == Residency::kResident && chunk.lost && !chunk.dirty) {
    chunk.dirty = true;
    chunk.dirty_epoch += 1;
    chunk.saved.reset();
  }
  // A client that saw RESIDENT stores its lease at this moment. It looks again before it relies on
  // the lease, sees the eviction, and withdraws the lease later.
  if (next.residency == Residency::kEvictPending && chunk.lease == 0 && Chance(10)) {
    chunk.lease = shm::LeaseWord{.generation = next.generation, .count = 1}.Encode();
  }
}

uint64_t Simulation::ReadLease(SessionId id, ChunkId chunk) {
  MayCrash();
  return sessions_.at(id).chunks[shm::Index(chunk)].lease;
}

uint64_t Simulation::ReadCompletion(SessionId id, uint16_t index) {
  MayCrash();
  return sessions_.at(id).completion[index];
}

// --- invariants ----------------------------------------------------------------------------------

bool Simulation::IsLegalStep(const shm::StateWord& from, const shm::StateWord& to, bool ended) {
  const uint32_t next_generation = (from.generation + 1) & shm::kGenerationMask;
  if (to.residency == Residency::kAbsent && OnDevice(from)) {
    const bool leaves =
        from.residency == Residency::kEvicting || from.residency == Residency::kFilling || ended;
    return leaves && to.generation == next_generation;
  }
  if (to.generation != from.generation) return false;
  switch (to.residency) {
    case Residency::kNone:
      return from.residency == Residency::kAbsent;
    case Residency::kAbsent:
      return from.residency == Residency::kNone;
    case Residency::kFilling:
      return from.residency == Residency::kAbsent;
    case Residency::kResident:
      return from.residency == Residency::kFilling || from.residency == Residency::kEvictPending;
    case Residency::kEvictPending:
      return from.residency == Residency::kResident;
    case Residency::kEvicting:
      return from.residency == Residency::kEvictPending;
  }
  return false;
}

bool Simulation::IsChanging(const ChunkModel& chunk) {
  return chunk.state == ChunkState::kCompute || shm::IsHeld(chunk.lease, chunk.word.generation);
}

// Marks the copies that a death leaves torn: a copy that was being written is worthless.
void Simulation::Judge(SessionModel* session) {
  for (ChunkModel& chunk : session->chunks) chunk.home_torn = false;
  for (const auto& [request_id, transfer] : session->transfers) {
    const bool writes = transfer.granted && transfer.direction == Direction::kDeviceToHost;
    if (writes) FindChunk(session, transfer.request.destination)->home_torn = true;
  }
  for (ChunkModel& chunk : session->chunks) {
    const bool whole = chunk.word.residency == Residency::kResident && !IsChanging(chunk) &&
                       chunk.kind != ChunkKind::kGatheredWeight;
    if (!whole) chunk.lost = chunk.lost || chunk.home_torn || chunk.dirty;
    if (whole && chunk.home_torn) chunk.dirty = true;
    if (chunk.lost) ++counts_.lost;
  }
}

// Checks that `next` may follow the published word, and that no client loses data by it.
void Simulation::CheckStep(const ChunkModel& chunk, const shm::StateWord& next, Leaving leaving) {
  const bool republished = next.Encode() == chunk.word.Encode();  // a session was reopened
  const bool ended = leaving == Leaving::kUnused || leaving == Leaving::kAll;
  // The next daemon concludes in one step an eviction whose daemon died.
  shm::StateWord concluded = chunk.word;
  if (restarting_ && concluded.residency == Residency::kEvictPending) {
    concluded.residency = Residency::kEvicting;
  }
  if (!republished && !IsLegalStep(chunk.word, next, ended) &&
      !IsLegalStep(concluded, next, ended)) {
    return Violate(absl::StrCat("published ", shm::Name(next.residency), " after ",
                                shm::Name(chunk.word.residency)));
  }
  const bool leaves = next.residency == Residency::kEvicting ||
                      (next.residency == Residency::kAbsent && OnDevice(chunk.word));
  if (!leaves) return;
  if (!ended && chunk.held) Violate("a leased chunk left");
  if (!ended && chunk.device_pins > 0) Violate("a chunk in a transfer left");
  const bool torn = leaving == Leaving::kUnused && IsChanging(chunk);
  if (leaving != Leaving::kAll && leaving != Leaving::kFreed && chunk.dirty && !torn) {
    Violate("the only copy of a chunk left");
  }
}

void Simulation::CheckExtents(const SessionModel& session) {
  std::bitset<kArenaSlots> taken;
  const uint64_t workspace_slots = RoundUpToSlot(session.workspace_bytes) / shm::kSlotBytes;
  for (uint64_t slot = kArenaSlots - workspace_slots; slot < kArenaSlots; ++slot) taken.set(slot);
  for (const ChunkModel& chunk : session.chunks) {
    if (!chunk.exists || !OnDevice(chunk.word)) continue;
    const uint64_t slots = RoundUpToSlot(chunk.bytes) / shm::kSlotBytes;
    for (uint64_t slot = chunk.word.slot; slot < chunk.word.slot + slots; ++slot) {
      if (slot >= kArenaSlots || taken.test(slot)) {
        return Violate("an extent overlaps another, the workspace or the arena's end");
      }
      taken.set(slot);
    }
  }
}

void Simulation::CheckFlights() {
  std::vector<std::array<InFlight, kDirections>> links(options_.devices.size());
  const auto exceeds = [](const InFlight& flight, uint64_t limit_bytes) {
    return flight.bytes > limit_bytes && flight.tickets > 1;
  };
  for (const auto& [id, session] : sessions_) {
    std::array<InFlight, kDirections> flights;
    std::bitset<shm::kCompletionWords> indices;
    for (const auto& [ticket, request_id] : session.tickets) {
      const TransferModel& transfer = session.transfers.at(request_id);
      for (InFlight* flight : {&flights[Index(transfer.direction)],
                               &links[shm::Value(session.device)][Index(transfer.direction)]}) {
        flight->tickets += 1;
        flight->bytes += transfer.request.bytes;
      }
      if (indices.test(transfer.ticket.completion_index)) Violate("a completion word is shared");
      indices.set(transfer.ticket.completion_index);
    }
    for (const InFlight& flight : flights) {
      if (flight.tickets > options_.transfers.tickets_in_flight &&
          flight.bytes > options_.transfers.small_bytes_in_flight) {
        Violate("too many tickets");
      }
      if (exceeds(flight, options_.transfers.bytes_in_flight)) Violate("too many bytes");
    }
  }
  CheckLinks(links);
}

void Simulation::CheckLinks(const std::vector<std::array<InFlight, kDirections>>& links) {
  const uint64_t limit_bytes = options_.transfers.link_bytes_in_flight;
  for (uint32_t device = 0; device < links.size(); ++device) {
    for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
      const InFlight& flight = links[device][Index(direction)];
      if (limit_bytes > 0 && flight.bytes > limit_bytes && flight.tickets > 1) {
        Violate("too many bytes on the link");
      }
      const InFlight told = engine_->transfers().FlightOf(DeviceIndex{device}, direction);
      if (told.bytes != flight.bytes || told.tickets != flight.tickets) {
        Violate("a device is charged with another's copies");
      }
    }
  }
}

void Simulation::CheckLedger() {
  uint64_t host = 0;
  uint64_t pools = 0;
  std::vector<uint64_t> on_device(options_.devices.size());
  for (const auto& [id, session] : sessions_) {
    for (const auto& [pool, bytes] : session.pools) pools += bytes;
    for (const ChunkModel& chunk : session.chunks) {
      if (!chunk.exists) continue;
      if (chunk.has_home) host += chunk.bytes;
      if (OnDevice(chunk.word)) on_device[shm::Value(session.device)] += chunk.bytes;
    }
  }
  const auto check = [this](Account account, uint64_t in_use, uint64_t handed_out,
                            uint64_t capacity) {
    const AccountTotals totals = engine_->ledger().Totals(account);
    if (totals.in_use_bytes != in_use || totals.reserved_bytes != handed_out - in_use ||
        totals.free_bytes != capacity - handed_out) {
      Violate(absl::StrCat("the ledger of ", Name(account), " is not what clients hold"));
    }
  };
  check(kHostAccount, host, pools + ChargedBytes(kHostAccount), kHostBytes);
  for (const DeviceDescription& device : options_.devices) {
    check(DeviceAccount(device.index), on_device[shm::Value(device.index)],
          ArenaBytesOn(device.index), device.capacity_bytes);
  }
}

// --- sessions and memory -------------------------------------------------------------------------

void Simulation::OpenSession() {
  SessionSpec spec;
  spec.tenant = Chance(30) ? "small" : "large";
  spec.job = "job";
  spec.rank = static_cast<int32_t>(Pick(4));
  spec.local_rank = spec.rank;
  spec.world_size = 4;
  if (Chance(50)) spec.device = DeviceIndex{static_cast<uint32_t>(Pick(4))};
  spec.weight = 1 + static_cast<uint32_t>(Pick(3));
  spec.death_policy = Chance(40) ? shm::DeathPolicy::kKeep : shm::DeathPolicy::kFree;
  const bool asks = half_run_.has_value() || Chance(12);
  RankRequest ask;
  if (asks) JoinRun(&spec, &ask);
  const std::string run = absl::StrCat("run", runs_);
  absl::StatusOr<SessionId> id;
  if (!Survives([&] { id = engine_->OpenSession(spec, now_); })) return;
  const bool is_there = shm::Value(GivenDevice(spec)) < options_.devices.size();
  if (id.ok() != (is_there && sessions_.size() < kMaxSessions)) {
    Violate("the session limit is wrong, or a device is not where it should be");
  }
  if (!id.ok()) return;
  const DeviceIndex device = GivenDevice(spec);
  counts_.sessions_beside += shm::Value(device) > 0 ? 1 : 0;
  const uint64_t left = options_.devices[shm::Value(device)].capacity_bytes - ArenaBytesOn(device);
  const bool made = !asks && engine_->CreateArena(*id, kArenaBytes).ok();
  if (made && kArenaBytes > left) Violate("more than a device has was given");
  const uint64_t promised = PromisedBytesOn(device);
  if (!asks && !made && promised + kArenaBytes <= left) Violate("a device counts as full");
  if (!asks && !made) {
    ++counts_.arenas_refused;
    const auto releases = engine_->CloseSession(*id, CloseReason::kDetached, now_);
    if (!releases.ok() || !releases->charges.empty()) Violate("it stays");
    return;
  }
  SessionModel& session = sessions_[*id];
  session.id = *id;
  session.spec = spec;
  session.device = device;
  session.has_arena = !asks;
  session.asks = asks;
  session.run = run;
  session.ask = ask;
  BeginBooks(&session);
  if (asks) AskAdmission(&session);
}

void Simulation::BeginBooks(SessionModel* session) {
  const uint64_t bytes = base::RoundUpToPage(SessionBooks::Bytes());
  base::Mapping& memory = books_[session->id];
  if (memory.data() != nullptr) death_.Forget(memory.data());
  memory = *base::Mapping::Map(*base::CreateSealedMemfd("books", bytes), bytes);
  death_.Watch(memory.data(), bytes);
  SessionFacts facts;
  facts.id = session->id;
  facts.spec = session->spec;
  facts.device = session->device;
  engine_->KeepBooks(session->id, *SessionBooks::Create({memory.data(), bytes}, facts));
}

// --- the daemon dies -----------------------------------------------------------------------------

InheritedSession Simulation::Inherit(SessionModel* session, bool in_doubt) {
  const base::Mapping& memory = books_.at(session->id);
  InheritedSession inherited(*SessionBooks::Open({memory.data(), memory.bytes()}));
  inherited.pools = session->pools;
  inherited.arena_bytes = session->has_arena ? kArenaBytes : 0;
  for (const ChunkModel& chunk : session->chunks) {
    inherited.state_words.push_back(chunk.word.Encode());
  }
  inherited.request_in_doubt = in_doubt;
  return inherited;
}

bool Simulation::Survives(const std::function<void()>& call, SessionModel* in_doubt) {
  if (Chance(30)) crash_in_ = static_cast<int>(Pick(6));
  const int stores =
      Chance(12) ? static_cast<int>(Pick(in_doubt == nullptr ? 120 : 30)) : StoreDeath::kNever;
  bool died = false;
  try {
    died = death_.DiesAt(stores, call);
    counts_.deaths_at_stores += died ? 1 : 0;
  } catch (const Crash&) {
    died = true;
  }
  crash_in_ = -1;
  if (!died) return true;
  ++counts_.restarts_within;
  Restart(in_doubt);
  return false;
}

// Some copies end without the daemon, or their clients are about to report it.
void Simulation::ActWithoutDaemon(SessionModel* session) {
  if (session->kept || session->dead) return;
  const std::map<uint64_t, uint64_t> tickets = session->tickets;
  for (const auto& [ticket, request_id] : tickets) {
    uint64_t& word = session->completion[session->transfers.at(request_id).ticket.completion_index];
    if (word != ticket && Chance(80)) continue;
    word = ticket;
    Settle(session, ticket);
    if (Chance(50)) continue;
    posted_.emplace_back(session->id, Make(RequestOp::kTransferDone));
    posted_.back().second.argument = ticket;
  }
  if (Chance(20)) TakeOrReleaseLease(session);
  if (session == in_call_ || !Chance(3)) return;
  session->dead = true;
  ++counts_.died_without_daemon;
}

bool Simulation::IsKept(SessionId session) const {
  const std::vector<SessionSnapshot> found = engine_->Sessions(session, 1);
  return !found.empty() && found[0].id == session && found[0].state == SessionState::kKept;
}

// Drops pools that were being made or destroyed, in which no chunk has its home.
void Simulation::DropPoolsOfNobody(SessionModel* session) {
  std::set<PoolId> used;
  for (const PoolSnapshot& pool : engine_->Pools({session->id, kNoPool})) {
    if (pool.session == session->id) used.insert(pool.pool);
  }
  std::erase_if(session->pools, [&](const auto& pool) { return !used.contains(pool.first); });
  if (session->leaving == Leaving::kFreed || session->leaving == Leaving::kAll) return;
  for (const ChunkModel& chunk : session->chunks) {
    if (chunk.exists && chunk.has_home && !used.contains(chunk.pool)) Violate("a home was lost");
  }
}

// Memory that was being made or destroyed has no owner any more.
void Simulation::Restart(SessionModel* in_doubt) {
  ++counts_.restarts;
  crash_in_ = -1;
  charges_.clear();
  for (auto& [id, session] : sessions_) ActWithoutDaemon(&session);
  std::vector<Outgoing> out;
  while (death_.DiesAt(Chance(20) ? static_cast<int>(Pick(60)) : StoreDeath::kNever,
                       [&] { TakeOver(in_doubt, &out); })) {
    ++counts_.deaths_in_restarts;
    restarting_ = false;
    out.clear();
  }
  if (!violation_.empty()) return;
  for (auto& [id, session] : sessions_) DropPoolsOfNobody(&session);
  ReceiveAgain(out);
}

void Simulation::TakeOver(SessionModel* in_doubt, std::vector<Outgoing>* out) {
  absl::StatusOr<Manifest> manifest = Manifest::Open(ManifestBytes());
  if (!manifest.ok()) return Violate(std::string(manifest.status().message()));
  engine_ = std::make_unique<Engine>(options_, static_cast<Tables*>(this), *std::move(manifest));
  for (auto& [id, session] : sessions_) {
    const absl::Status status =
        engine_->RestoreSession(Inherit(&session, &session == in_doubt), now_);
    if (!status.ok()) return Violate(std::string(status.message()));
  }
  restarting_ = true;
  engine_->FinishRestore(now_, out);
  restarting_ = false;
  engine_->HasServed();
}

// The clients already have some of the tickets, which must not change. The others are new.
void Simulation::ReceiveAgain(const std::vector<Outgoing>& out) {
  std::vector<Outgoing> news;
  for (const Outgoing& outgoing : out) {
    const SessionModel& session = sessions_.at(outgoing.session);
    const auto transfer = session.transfers.find(outgoing.response.request_id);
    if (transfer == session.transfers.end() || !transfer->second.granted) {
      news.push_back(outgoing);
    } else if (outgoing.response.ticket != transfer->second.ticket.ticket ||
               outgoing.response.completion_index != transfer->second.ticket.completion_index ||
               outgoing.response.device_offset != transfer->second.ticket.device_offset) {
      Violate("a ticket came again and was another one");
    }
  }
  Receive(news, nullptr, nullptr);
}

DeviceIndex Simulation::GivenDevice(const SessionSpec& spec) const {
  if (spec.device != shm::kAnyDevice) return spec.device;
  return DeviceIndex{static_cast<uint32_t>(spec.local_rank) %
                     static_cast<uint32_t>(options_.devices.size())};
}

uint64_t Simulation::ArenaBytesOn(DeviceIndex device) const {
  uint64_t bytes = 0;
  for (const auto& [id, session] : sessions_) {
    bytes += session.device == device && session.has_arena ? kArenaBytes : 0;
  }
  return bytes + ChargedBytes(DeviceAccount(device));
}

// Bytes promised to ranks that may have been admitted by now, as far as their clients know.
uint64_t Simulation::PromisedBytesOn(DeviceIndex device) const {
  uint64_t bytes = 0;
  for (const auto& [id, session] : sessions_) {
    bytes += session.device == device && session.asks && !session.has_arena ? kArenaBytes : 0;
  }
  return bytes;
}

uint64_t Simulation::ChargedBytes(Account account) const {
  uint64_t bytes = 0;
  for (const auto& [id, charge] : charges_) bytes += charge.account == account ? charge.bytes : 0;
  return bytes;
}

void Simulation::Allocate(SessionModel* session) {
  uint64_t there = std::count_if(session->chunks.begin(), session->chunks.end(),
                                 [](const ChunkModel& chunk) { return chunk.exists; });
  for (const auto& [id, charge] : charges_) {
    there += charge.session == session->id ? charge.specs.size() : 0;
  }
  const uint64_t count = 1 + Pick(3);
  if (there + count > kMaxChunks) return;
  std::vector<ChunkSpec> specs;
  for (uint64_t i = 0; i < count; ++i) {
    const auto kind = static_cast<ChunkKind>(1 + Pick(8));
    const bool has_home = kind != ChunkKind::kGatheredWeight && !Chance(10);
    // The size is a whole number of cells, so the model tracks write-backs in cells exactly.
    specs.push_back({"c", kind, kCells * (1 + Pick(1000)), has_home});
  }
  const uint64_t number = ++allocations_;
  absl::StatusOr<Promise> promise;
  const auto begin = [&] { promise = engine_->BeginAllocation(session->id, specs, number); };
  if (!Survives(begin)) return;
  if (!promise.ok()) return CheckRefusal(*session, specs);
  charges_[promise->charge] = {kHostAccount, promise->bytes, session->id, specs,
                               true,         promise->pool,  number,      session->spec.tenant};
  if (Chance(60)) EndMaking();
}

// Some memory was made, or could not be made.
void Simulation::EndMaking() {
  for (auto it = charges_.begin(); it != charges_.end();) {
    const auto [id, charge] = *it++;
    if (!charge.is_promise || Chance(30)) continue;
    const auto session = sessions_.find(charge.session);
    const bool wanted = session != sessions_.end() && !session->second.kept;
    if (wanted && Chance(80)) {
      charges_.erase(id);
      in_call_ = &session->second;
      if (charge.pool != kNoPool) in_call_->pools[charge.pool] = charge.bytes;
      absl::StatusOr<Allocation> allocation;
      const ChargeId promised = id;
      if (!Survives([&] { allocation = engine_->FinishAllocation(promised); })) {
        ++counts_.deaths_in_allocations;
        return ForgetAllocation(in_call_, charge.number);
      }
      in_call_ = nullptr;
      if (!allocation.ok()) return Violate("what was promised was not given");
      Enter(&session->second, *allocation, charge.specs);
      continue;
    }
    if (!wanted && engine_->FinishAllocation(id).ok()) Violate("memory was given to nobody");
    engine_->GiveBack(id);
    charges_.erase(id);
  }
}

// Frees the allocation, as the shell does for a client that got no answer, before a new one.
void Simulation::ForgetAllocation(SessionModel* session, uint64_t number) {
  absl::StatusOr<Releases> releases;
  while (violation_.empty() && !Survives([&] {
           releases = engine_->Free(session->id, *engine_->MadeBy(session->id, number, number));
         })) {
  }
  in_call_ = nullptr;
  if (!violation_.empty()) return;
  if (!releases.ok()) return Violate("an allocation in part could not be freed");
  Collect(*releases);
}

void Simulation::GiveBack() {
  for (auto it = charges_.begin(); it != charges_.end();) {
    const auto [id, charge] = *it++;
    if (charge.is_promise || Chance(50)) continue;
    engine_->GiveBack(id);
    charges_.erase(id);
  }
}

void Simulation::Enter(SessionModel* session, const Allocation& allocation,
                       const std::vector<ChunkSpec>& specs) {
  if (allocation.pool != kNoPool) session->pools[allocation.pool] = allocation.pool_bytes;
  for (uint64_t i = 0; i < specs.size(); ++i) {
    ChunkModel& chunk = session->chunks[shm::Index(allocation.chunks[i])];
    if (chunk.exists) Violate("a chunk number is used twice");
    const uint64_t lease = chunk.lease;
    chunk = {.exists = true,
             .has_home = specs[i].has_home,
             .kind = specs[i].kind,
             .bytes = specs[i].bytes,
             .pool = specs[i].has_home ? allocation.pool : kNoPool,
             .home_offset = allocation.home_offsets[i],
             .word = chunk.word,
             .saved = {},
             .lease = lease};
    if (chunk.has_home && chunk.home_offset + chunk.bytes > allocation.pool_bytes) {
      Violate("a home lies outside its pool");
    }
  }
}

void Simulation::Free(SessionModel* session) {
  std::vector<ChunkId> ids;
  for (uint32_t i = 0; i < kMaxChunks; ++i) {
    if (Chance(30)) ids.push_back(ChunkId{i});
  }
  Free(session, std::move(ids));
}

void Simulation::Free(SessionModel* session, std::vector<ChunkId> ids) {
  session->leaving = Leaving::kFreed;
  in_call_ = session;
  absl::StatusOr<Releases> releases;
  while (!Survives([&] { releases = engine_->Free(session->id, ids); })) {
    ++counts_.deaths_in_frees;
    if (!violation_.empty()) return;
    // The shell frees the rest for a client that got no answer.
    std::erase_if(ids, [&](ChunkId id) {
      if (engine_->FindChunk(session->id, id).has_value()) return false;
      Remove(session, id);
      return true;
    });
  }
  in_call_ = nullptr;
  session->leaving = Leaving::kNothing;
  if (!releases.ok()) return;
  for (const ChunkId id : ids) Remove(session, id);
  Collect(*releases);
}

void Simulation::Remove(SessionModel* session, ChunkId id) {
  const ChunkModel& chunk = session->chunks[shm::Index(id)];
  if (!chunk.exists) Violate("a chunk that was not there was freed");
  session->chunks[shm::Index(id)] = {.word = chunk.word, .saved = {}, .lease = chunk.lease};
}

void Simulation::Collect(const Releases& releases) {
  size_t charges = 0;
  const auto charge = [&](Account account, uint64_t bytes, const SessionModel& session) {
    if (charges >= releases.charges.size()) return Violate("memory was released without a charge");
    charges_[releases.charges[charges++]] = {
        .account = account, .bytes = bytes, .tenant = session.spec.tenant, .holder = session.id};
  };
  size_t arenas = 0;
  size_t pools = 0;
  const auto take_pools_of = [&](SessionId id) {
    for (; pools < releases.pools.size() && releases.pools[pools].session == id; ++pools) {
      const auto session = sessions_.find(id);
      const PoolId pool = releases.pools[pools].pool;
      if (session == sessions_.end() || !session->second.pools.contains(pool)) {
        return Violate("a pool was released that nobody had, or twice");
      }
      charge(kHostAccount, session->second.pools.extract(pool).mapped(), session->second);
    }
  };
  for (const SessionId id : releases.sessions) {
    take_pools_of(id);
    const auto session = sessions_.find(id);
    if (session == sessions_.end()) return Violate("a session ended twice");
    if (session->second.has_arena) {
      charge(DeviceAccount(session->second.device), kArenaBytes, session->second);
      ++arenas;
    }
    if (!session->second.pools.empty()) Violate("a session ended and left a pool");
    for (const auto& [request_id, transfer] : session->second.transfers) {
      unanswered_.erase(request_id);
    }
    if (const auto books = books_.find(id); books != books_.end()) {
      death_.Forget(books->second.data());
      books_.erase(books);
    }
    sessions_.erase(session);
  }
  if (releases.arenas.size() != arenas) Violate("an arena was not released");
  if (pools < releases.pools.size()) take_pools_of(releases.pools[pools].session);
  if (pools != releases.pools.size()) Violate("a pool was released out of turn");
  if (charges != releases.charges.size()) Violate("a charge was released without memory");
}

void Simulation::BuryDead() {
  while (violation_.empty()) {
    const auto dead = std::find_if(sessions_.begin(), sessions_.end(),
                                   [](const auto& session) { return session.second.dead; });
    if (dead == sessions_.end()) return;
    Close(&dead->second, CloseReason::kDied);
  }
}

void Simulation::SendPosted() {
  for (const auto& [id, request] : std::exchange(posted_, {})) {
    const auto session = sessions_.find(id);
    if (session == sessions_.end() || session->second.kept || session->second.dead) continue;
    Send(&session->second, request);
    if (!violation_.empty()) return;
  }
}

void Simulation::Close(SessionModel* session, CloseReason reason) {
  ++counts_.kills;
  session->dead = true;
  const bool has_chunks = std::any_of(session->chunks.begin(), session->chunks.end(),
                                      [](const ChunkModel& chunk) { return chunk.exists; });
  const bool keep = reason != CloseReason::kDetached && has_chunks &&
                    session->spec.death_policy == shm::DeathPolicy::kKeep;
  session->leaving = keep ? Leaving::kUnused : Leaving::kAll;
  const SessionId id = session->id;
  for (bool closed = false; !closed && violation_.empty();) {
    if (keep) Judge(session);
    closed = BeginClose(session, reason) && ContinueClose(session);
    if (closed) break;
    ++counts_.deaths_in_ends;
    if (!violation_.empty()) return;
    if (IsKept(id)) return keep ? Keep(session) : Violate("it was retained");
  }
  if (!violation_.empty()) return;
  if (sessions_.contains(id) != keep) return Violate("the death policy was not followed");
  if (keep) Keep(session);
}

// False: the daemon died. The same holds for ContinueClose.
bool Simulation::BeginClose(SessionModel* session, CloseReason reason) {
  absl::StatusOr<Releases> releases;
  if (!Survives([&] { releases = engine_->BeginClose(session->id, reason, now_); })) return false;
  if (!releases.ok()) {
    Violate("a session could not be closed");
    return false;
  }
  Collect(*releases);
  return true;
}

// Closes slice by slice. Requests of other clients and deaths of the daemon come in between.
bool Simulation::ContinueClose(SessionModel* session) {
  const SessionId id = session->id;
  for (bool done = false; !done;) {
    if (const absl::Status status = engine_->Check(); !status.ok()) {
      Violate(std::string(status.message()));
    }
    const uint64_t restarts = counts_.restarts;
    if (Chance(20)) ActBeside(id);
    if (!violation_.empty() || counts_.restarts != restarts) return false;
    Releases releases;
    const size_t most = 1 + Pick(3);
    const bool lives = Survives([&] {
      releases = {};
      done = engine_->ContinueClose(id, most, &releases);
    });
    if (!lives) return false;
    Collect(releases);
    ++counts_.slices;
  }
  return true;
}

void Simulation::ActBeside(SessionId id) {
  for (auto& [other, session] : sessions_) {
    if (other == id || session.kept || session.dead) continue;
    return Chance(50) ? CompleteTicket(&session) : SendSensible(&session);
  }
}

void Simulation::Keep(SessionModel* session) {
  ++counts_.kept;
  session->kept = true;
  session->dead = false;
  for (auto& [id, charge] : charges_) {
    if (charge.session == session->id) charge.session = kNoSession;
  }
  session->workspace_bytes = 0;
  session->asks = session->admitted = session->asked_to_yield = false;
  for (const auto& [request_id, transfer] : session->transfers) unanswered_.erase(request_id);
  session->transfers.clear();
  session->tickets.clear();
  for (ChunkModel& chunk : session->chunks) {
    chunk.device_pins = 0;
    chunk.held = false;
    chunk.saved.reset();
    if (chunk.state != ChunkState::kFree) chunk.state = ChunkState::kHold;
    if (chunk.kind == ChunkKind::kGatheredWeight && OnDevice(chunk.word)) {
      Violate("a gathered weight was kept");
    }
  }
}

void Simulation::Reopen(SessionModel* session) {
  for (ChunkModel& chunk : session->chunks) chunk.lease = 0;
  session->leaving = Leaving::kNothing;
  absl::Status reopened;
  const bool lives = Survives([&] {
    reopened = engine_->ReopenSession(session->id, session->spec, now_);
    engine_->SetWelcomed(session->id);
  });
  if (!violation_.empty()) return;
  if (!lives && IsKept(session->id)) {
    session->leaving = Leaving::kUnused;
    return;  // its client was never told
  }
  if (!reopened.ok()) return Violate("a kept session could not be reopened");
  ++counts_.reopened;
  session->kept = false;
  session->completion = {};
}

void Simulation::AdvanceTime() {
  now_ = now_ + Duration::Nanoseconds(static_cast<int64_t>(Pick(100'000'000)));
  for (auto& [id, session] : sessions_) {
    if (session.kept) session.leaving = Leaving::kAll;
  }
  std::vector<Outgoing> out;
  Releases releases;
  while (!Survives([&] { releases = engine_->Tick(now_, &out); })) {
    out.clear();
    if (!violation_.empty()) return;
  }
  Receive(out, nullptr, nullptr);
  Collect(releases);
  for (auto& [id, session] : sessions_) {
    if (session.kept) session.leaving = Leaving::kUnused;
  }
}

// --- clients -------------------------------------------------------------------------------------

void Simulation::TakeOrReleaseLease(SessionModel* session) {
  ChunkModel& chunk = session->chunks[Pick(kMaxChunks)];
  if (chunk.lease != 0) {
    chunk.lease = 0;
    chunk.held = false;
  } else if (chunk.exists && chunk.word.residency == Residency::kResident) {
    chunk.lease = shm::LeaseWord{.generation = chunk.word.generation, .count = 1}.Encode();
    chunk.held = true;
  } else if (Chance(20)) {
    chunk.lease = random_();  // a forged word
  }
}

void Simulation::SetPlan(SessionModel* session) {
  NextUseTable table{.moments = 8, .chunks = {}};
  for (uint32_t i = 0; i < kMaxChunks; ++i) {
    if (session->chunks[i].exists && Chance(70)) {
      table.chunks.push_back({ChunkId{i}, {static_cast<uint32_t>(Pick(8))}});
    }
  }
  if (!engine_->SetPlan(session->id, table).ok()) Violate("a good plan was refused");
}

shm::Request Simulation::Make(RequestOp op) {
  shm::Request request{};
  request.request_id = next_request_++;
  request.op = op;
  request.source = request.destination = PickChunk();
  request.priority = static_cast<Priority>(Pick(3));
  request.cause = static_cast<TransferCause>(1 + Pick(4));
  request.deadline_moment = Chance(50) ? kNoDeadline : static_cast<uint16_t>(Pick(10));
  if (Chance(20)) request.flags |= shm::kNoReply;
  return request;
}

void Simulation::SendTransfer(SessionModel* session) {
  shm::Request request = Make(RequestOp::kTransfer);
  if (Chance(50)) request.destination = PickChunk();
  const ChunkModel* source = FindChunk(session, request.source);
  const ChunkModel* destination = FindChunk(session, request.destination);
  if (source == nullptr || destination == nullptr) return Send(session, request);
  const bool self = source == destination;
  const bool load = source->has_home && (!self || !OnDevice(source->word));
  if (load) {
    request.flags |= Chance(80) ? shm::kAllocateDestination : 0;
    request.flags |= Chance(70) ? shm::kPublishWhenDone : 0;
    request.flags |= Chance(90) ? shm::kMayEvict : 0;
    request.device_offset = Chance(60) ? shm::kAnyOffset : Pick(kArenaSlots + 1) * shm::kSlotBytes;
  } else {
    request.flags |= Chance(30) ? shm::kDropSourceWhenDone : 0;
  }
  const uint64_t cell = source->bytes / kCells;
  const uint64_t first = Chance(60) ? 0 : Pick(kCells);
  const uint64_t cells = Chance(50) ? kCells - first : 1 + Pick(kCells - first);
  request.source_offset = first * cell;
  request.bytes = cells * cell;
  request.destination_offset = self ? request.source_offset : 0;
  Send(session, request);
}

void Simulation::SendTransition(SessionModel* session) {
  shm::Request request = Make(RequestOp::kTransition);
  request.argument = Pick(shm::kChunkStates) | (Chance(40) ? shm::kDirtyBit : 0);
  Send(session, request);
}

void Simulation::SendSensible(SessionModel* session) {
  switch (Pick(10)) {
    case 0: {
      shm::Request request = Make(RequestOp::kAllocateExtent);
      request.device_offset = Chance(60) ? shm::kAnyOffset : Pick(kArenaSlots) * shm::kSlotBytes;
      if (Chance(90)) request.flags |= shm::kMayEvict;
      return Send(session, request);
    }
    case 1:
      return Send(session, Make(RequestOp::kPublish));
    case 2:
      return Send(session, Make(RequestOp::kDrop));
    case 3:
    case 4:
      return SendTransition(session);
    case 5: {
      shm::Request request = Make(RequestOp::kReserveWorkspace);
      request.bytes = Pick(kArenaSlots * shm::kSlotBytes / 2);
      if (Chance(50)) request.flags |= shm::kMayEvict;
      return Send(session, request);
    }
    case 6: {
      shm::Request request = Make(RequestOp::kBeginMoment);
      request.argument = Pick(10);
      return Send(session, request);
    }
    default:
      return SendTransfer(session);
  }
}

void Simulation::SendGarbage(SessionModel* session) {
  shm::Request request = Make(static_cast<RequestOp>(Pick(11)));
  const auto any = [this]() -> uint64_t {
    switch (Pick(4)) {
      case 0:
        return random_();
      case 1:
        return ~uint64_t{0} - Pick(5000);
      case 2:
        return Pick(20000);
      default:
        return Pick(10);
    }
  };
  request.flags = static_cast<uint16_t>(Chance(80) ? Pick(32) : random_());
  if (Chance(20)) request.priority = static_cast<Priority>(random_());
  if (Chance(20)) request.cause = static_cast<TransferCause>(random_());
  if (Chance(30)) request.source = ChunkId{static_cast<uint32_t>(any())};
  if (Chance(30)) request.destination = ChunkId{static_cast<uint32_t>(any())};
  request.source_offset = any();
  request.destination_offset = Chance(50) ? request.source_offset : any();
  request.bytes = any();
  request.argument = any();
  Send(session, request);
}

// Mostly honest. Sometimes the completion word was not written, or the ticket does not exist.
void Simulation::CompleteTicket(SessionModel* session) {
  shm::Request request = Make(RequestOp::kTransferDone);
  request.argument = Pick(1000);
  if (!session->tickets.empty()) {
    const auto chosen = std::next(session->tickets.begin(), Pick(session->tickets.size()));
    request.argument = chosen->first;
    const uint16_t index = session->transfers.at(chosen->second).ticket.completion_index;
    if (Chance(90)) session->completion[index] = chosen->first;
  }
  Send(session, request);
}

// --- answers -------------------------------------------------------------------------------------

// Whether this request will end a ticket. Its copy is then done before the daemon knows.
bool Simulation::Completes(const SessionModel& session, const shm::Request& request) const {
  if (request.op != RequestOp::kTransferDone || request.flags >= 32) return false;
  const auto ticket = session.tickets.find(request.argument);
  if (ticket == session.tickets.end()) return false;
  const shm::Response& granted = session.transfers.at(ticket->second).ticket;
  return session.completion[granted.completion_index] == request.argument;
}

void Simulation::Send(SessionModel* session, const shm::Request& request) {
  const bool is_transfer = request.op == RequestOp::kTransfer;
  if (is_transfer) {
    TransferModel& transfer = session->transfers[request.request_id];
    transfer.request = request;
    const ChunkModel* source = FindChunk(session, request.source);
    if (source != nullptr) transfer.dirty_epoch = source->dirty_epoch;
  }
  const bool completes = Completes(*session, request);
  const bool drops =
      completes && Has(session->transfers.at(session->tickets.at(request.argument)).request,
                       shm::kDropSourceWhenDone);
  if (completes) Settle(session, request.argument);
  unanswered_.insert(request.request_id);
  std::vector<Outgoing> out;
  const uint64_t errors = counts_.errors;
  in_call_ = session;
  for (bool done = false; !done;) {
    // An earlier daemon may have answered; the next one skips the request.
    const bool answered = unanswered_.count(request.request_id) == 0;
    done = Survives([&] { engine_->HandleRequest(session->id, request, now_, &out); },
                    answered ? nullptr : session);
    if (done) break;
    out.clear();
    if (!violation_.empty()) return;
    done = answered;
  }
  in_call_ = nullptr;
  Receive(out, session, &request);
  const bool answered = unanswered_.count(request.request_id) == 0;
  if (is_transfer || !violation_.empty()) return DieAfterAnswer(session, request, answered);
  if (request.op == RequestOp::kTransferDone) {
    const bool refused = counts_.errors > errors;
    // Only a drop may still fail, by this transfer or an earlier one.
    if (refused && completes && !drops && !late_drops_) Violate("a true completion was refused");
    // Completions of earlier daemons' tickets are ignored.
    const bool old = request.argument < FirstTicketOf(engine_->manifest().epoch());
    if (!refused && !completes && !old) Violate("a false completion was believed");
  }
  if (answered) return DieAfterAnswer(session, request, answered);
  unanswered_.erase(request.request_id);
  // A request without an answer was carried out, and must be one that needs no answer.
  const bool silent = request.op == RequestOp::kTransferDone ||
                      request.op == RequestOp::kBeginMoment || Has(request, shm::kNoReply);
  if (!silent) Violate("a request was not answered");
  Apply(session, request);
  DieAfterAnswer(session, request, answered);
}

// The daemon dies before it has removed the request from the ring. The client may have acted on the
// answer. The shell skips requests that were answered, and carries out the others again.
void Simulation::DieAfterAnswer(SessionModel* session, const shm::Request& request, bool answered) {
  if (!violation_.empty() || !Chance(4)) return;
  ++counts_.deaths_after_answers;
  in_call_ = session;
  Restart(answered ? nullptr : session);
  in_call_ = nullptr;
  if (answered || !violation_.empty()) return;
  std::vector<Outgoing> out;
  engine_->HandleRequest(session->id, request, now_, &out);
  Receive(out, session, &request);
}

void Simulation::Receive(const std::vector<Outgoing>& out, SessionModel* sender,
                         const shm::Request* request) {
  for (const Outgoing& outgoing : out) {
    const auto session = sessions_.find(outgoing.session);
    if (session == sessions_.end() || session->second.kept) {
      return Violate("an answer for a session that is gone");
    }
    if (unanswered_.erase(outgoing.response.request_id) != 1) {
      return Violate("a request was answered twice, or nobody asked");
    }
    const bool own = request != nullptr && request->request_id == outgoing.response.request_id;
    if (own && sender != &session->second) Violate("the answer went to another session");
    Answer(&session->second, outgoing, own ? request : nullptr);
  }
  // A transfer that was accepted and not granted yet occupies its device copy from now on.
  if (request == nullptr || request->op != RequestOp::kTransfer) return;
  const auto transfer = sender->transfers.find(request->request_id);
  if (transfer != sender->transfers.end() && transfer->second.direction == Direction::kNone) {
    Accept(sender, request->request_id);
  }
}

// `request`: the request that was just sent, if this answers it.
void Simulation::Answer(SessionModel* session, const Outgoing& outgoing,
                        const shm::Request* request) {
  const shm::Response& response = outgoing.response;
  switch (response.op) {
    case ResponseOp::kTicket:
      return TakeTicket(session, response);
    case ResponseOp::kError:
      ++counts_.errors;
      if (outgoing.error.empty() || response.status == 0) Violate("an error without words");
      if (request == nullptr) Violate("an error came late");
      session->transfers.erase(response.request_id);
      return;
    case ResponseOp::kDone:
      if (request == nullptr || Has(*request, shm::kNoReply)) {
        return Violate("an answer that nobody wanted");
      }
      return Apply(session, *request);
    case ResponseOp::kNone:
      return Violate("an empty answer");
  }
}

// The direction of an accepted transfer, by the rules of the wire; its device copy may not leave.
void Simulation::Accept(SessionModel* session, uint64_t request_id) {
  TransferModel& transfer = session->transfers.at(request_id);
  ChunkModel* source = FindChunk(session, transfer.request.source);
  ChunkModel* destination = FindChunk(session, transfer.request.destination);
  if (source == nullptr || destination == nullptr) return Violate("a copy of no chunk");
  const bool load =
      source == destination ? Has(transfer.request, shm::kAllocateDestination) : source->has_home;
  transfer.direction = load ? Direction::kHostToDevice : Direction::kDeviceToHost;
  (load ? destination : source)->device_pins += 1;
  if (load) source->lost = false;  // the client says that it knows the bytes there
}

void Simulation::TakeTicket(SessionModel* session, const shm::Response& response) {
  ++counts_.tickets;
  const auto found = session->transfers.find(response.request_id);
  if (found == session->transfers.end()) return Violate("a ticket for no transfer");
  TransferModel& transfer = found->second;
  if (transfer.granted) return Violate("two tickets for one transfer");
  if (transfer.direction == Direction::kNone) Accept(session, response.request_id);
  if (!violation_.empty()) return;
  transfer.granted = true;
  transfer.ticket = response;
  const bool load = transfer.direction == Direction::kHostToDevice;
  const shm::Request& request = transfer.request;
  const ChunkModel& at_home = *FindChunk(session, load ? request.source : request.destination);
  const ChunkModel& on_device = *FindChunk(session, load ? request.destination : request.source);
  const uint64_t home = load ? request.source_offset : request.destination_offset;
  const uint64_t device = load ? request.destination_offset : request.source_offset;
  if (response.direction != transfer.direction || response.bytes != request.bytes ||
      response.pool != at_home.pool || response.host_offset != at_home.home_offset + home ||
      response.device_offset != on_device.word.slot * shm::kSlotBytes + device ||
      home + request.bytes > at_home.bytes || device + request.bytes > on_device.bytes ||
      !OnDevice(on_device.word)) {
    Violate("a ticket names the wrong place");
  }
  if (!ticket_ids_.insert(response.ticket).second) Violate("a ticket number came twice");
  session->tickets[response.ticket] = response.request_id;
}

void Simulation::Settle(SessionModel* session, uint64_t ticket) {
  const uint64_t request_id = session->tickets.at(ticket);
  const TransferModel transfer = session->transfers.at(request_id);
  session->transfers.erase(request_id);
  session->tickets.erase(ticket);
  const shm::Request& request = transfer.request;
  const bool load = transfer.direction == Direction::kHostToDevice;
  ChunkModel* device = FindChunk(session, load ? request.destination : request.source);
  if (device == nullptr) return Violate("a chunk went during its copy");
  device->device_pins -= 1;
  // If another copy delays a drop, the drop is due when that copy is done, and may then be refused.
  late_drops_ = late_drops_ || Has(request, shm::kDropSourceWhenDone);
  // Some bytes of a lost home copy are written again. The engine may say whether all are.
  if (!load && request.source != request.destination) {
    FindChunk(session, request.destination)->lost = false;
  }
  const bool saves = request.source == request.destination && !load && device->dirty &&
                     transfer.dirty_epoch == device->dirty_epoch;
  if (!saves) return;
  const uint64_t cell = device->bytes / kCells;
  for (uint64_t i = request.source_offset / cell;
       i <= (request.source_offset + request.bytes - 1) / cell; ++i) {
    device->saved.set(i);
  }
  if (!device->saved.all()) return;
  device->dirty = false;
  device->lost = false;
  ++counts_.write_backs;
}

void Simulation::ApplyTransition(ChunkModel* chunk, uint64_t argument) {
  const auto to = static_cast<ChunkState>(argument & 0xff);
  const bool dirty = (argument & shm::kDirtyBit) != 0;
  if (!shm::IsLegalTransition(chunk->state, to) && !(dirty && chunk->state == to)) {
    Violate("an illegal transition was allowed");
  }
  chunk->state = to;
  if (dirty && chunk->has_home) {
    chunk->dirty = true;
    chunk->dirty_epoch += 1;
    chunk->saved.reset();
  }
  if (to == ChunkState::kFree) chunk->dirty = chunk->lost = false;
}

// Applies a request that was carried out.
void Simulation::Apply(SessionModel* session, const shm::Request& request) {
  const ChunkId subject =
      request.destination == shm::kNoChunk ? request.source : request.destination;
  ChunkModel* chunk = FindChunk(session, subject);
  if (request.op == RequestOp::kReserveWorkspace) {
    session->workspace_bytes = request.bytes;
    return CheckExtents(*session);
  }
  if (request.op == RequestOp::kTransferDone || request.op == RequestOp::kBeginMoment) return;
  if (chunk == nullptr) return Violate("something was done to no chunk");
  if (request.op == RequestOp::kTransition) return ApplyTransition(chunk, request.argument);
  const Residency residency = chunk->word.residency;
  const bool as_asked =
      (request.op == RequestOp::kAllocateExtent && residency == Residency::kFilling) ||
      (request.op == RequestOp::kPublish && residency == Residency::kResident) ||
      (request.op == RequestOp::kDrop && residency == Residency::kAbsent);
  if (!as_asked) Violate("a request was answered and not carried out");
}

// --- the loop ------------------------------------------------------------------------------------

void Simulation::Step() {
  BuryDead();
  SendPosted();
  if (!violation_.empty()) return;
  SessionModel* session = PickSession(false);
  const uint64_t action = Pick(100);
  if (session == nullptr || action < 1) {
    SessionModel* kept = PickSession(true);
    if (kept != nullptr && Chance(50)) {
      Reopen(kept);
    } else if (sessions_.size() == kMaxSessions) {
      AdvanceTime();
    } else {
      OpenSession();
    }
  } else if (action < 2) {
    if (Chance(20)) Close(session, static_cast<CloseReason>(Pick(3)));
  } else if (action < 5) {
    Allocate(session);
  } else if (action < 7) {
    Free(session);
  } else if (action < 8) {
    Chance(30) ? Restart(nullptr) : AdvanceTime();
  } else if (action < 9) {
    EndMaking();
  } else if (action < 10) {
    GiveBack();
  } else if (action < 20) {
    TakeOrReleaseLease(session);
  } else if (action < 21) {
    SetPlan(session);
  } else if (action < 33 && session->asks) {
    ActAsJob(session);
  } else if (action < 45) {
    CompleteTicket(session);
  } else if (action < 55) {
    SendGarbage(session);
  } else {
    SendSensible(session);
  }
  CheckFlights();
  CheckLedger();
  if (const absl::Status status = engine_->Check(); !status.ok()) {
    Violate(std::string(status.message()));
  }
}

void Simulation::Finish() {
  BuryDead();
  SendPosted();
  BuryDead();
  for (auto& [id, session] : sessions_) {
    if (session.kept) continue;
    while (!session.tickets.empty()) {
      const auto [ticket, request_id] = *session.tickets.begin();
      session.completion[session.transfers.at(request_id).ticket.completion_index] = ticket;
      shm::Request request = Make(RequestOp::kTransferDone);
      request.argument = ticket;
      Send(&session, request);
      if (!violation_.empty()) return;
    }
  }
  if (!unanswered_.empty()) Violate("a request was never answered");
  while (!sessions_.empty() && violation_.empty()) {
    CheckLastIsAdmitted();
    SessionModel& session = sessions_.begin()->second;
    session.leaving = Leaving::kAll;
    const auto releases = engine_->CloseSession(session.id, CloseReason::kDetached, now_);
    if (!releases.ok()) return Violate("a session could not be ended");
    Collect(*releases);
  }
  for (const auto& [id, charge] : charges_) engine_->GiveBack(id);
  charges_.clear();
  CheckLedger();
  if (!engine_->ledger().Lines().empty() || engine_->manifest().used_records() != 0 ||
      !engine_->Check().ok()) {
    Violate("something was left behind");
  }
}

}  // namespace geminid::core
