#include "daemon/core/records/session_books.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/shm/crc32c.h"

namespace geminid::core {
namespace {

constexpr size_t kNameSlotBytes = 128;  // the longest name of a chunk

template <size_t kBytes>
bool PutText(const std::string& text, char (&field)[kBytes]) {
  if (text.size() >= kBytes) return false;
  std::memset(field, 0, kBytes);
  std::memcpy(field, text.data(), text.size());
  return true;
}

template <size_t kBytes>
std::string GetText(const char (&field)[kBytes]) {
  return std::string(field, ::strnlen(field, kBytes));
}

struct FactsRecord {
  uint64_t id;
  int64_t opened_at_nanoseconds;
  int64_t pid;
  uint32_t uid;
  uint32_t weight;
  int32_t rank;
  int32_t world_size;
  int32_t local_rank;
  int32_t local_world_size;
  uint32_t device_asked;
  uint32_t device;
  uint32_t death_policy;
  uint32_t reserved;
  SessionToken token;
  char tenant[kMaxTenantBytes];
  char job[shm::kNameBytes];
  char client[shm::kNameBytes];
  char run[shm::kNameBytes];
};

struct JobRecord {
  std::atomic<uint64_t> valid;
  std::atomic<uint64_t> state;  // a JobState; bit 8: it yielded; bit 9: it is held
  std::atomic<int64_t> since_nanoseconds;
  uint64_t job;  // a JobId
  uint64_t device_bytes;
  uint64_t host_bytes;
  int32_t rank;
  uint32_t ranks;
  int32_t priority;
  uint32_t device;
  uint32_t weight;
  uint8_t preemptible;
  uint8_t may_wait;
  uint16_t reserved;
  char run[shm::kNameBytes];
};
constexpr uint64_t kYieldedBit = 0x100;
constexpr uint64_t kHeldBit = 0x200;

// The place of a transfer: free, waiting, or under way.
enum class Place : uint64_t { kFree = 0, kWaits = 1, kGranted = 2 };

struct TransferRecord {
  std::atomic<uint64_t> place;  // a Place
  uint64_t order;
  uint64_t request_id;
  int64_t since_nanoseconds;
  uint64_t ticket;
  uint64_t bytes;
  uint64_t source_offset;
  uint64_t destination_offset;
  uint64_t dirty_epoch;
  int64_t granted_nanoseconds;
  uint32_t source;
  uint32_t destination;
  uint16_t completion_index;
  uint16_t deadline_moment;
  uint16_t flags;
  uint8_t direction;
  uint8_t priority;
  uint8_t cause;
  uint8_t reserved[31];
};
static_assert(sizeof(TransferRecord) == 128);

}  // namespace

struct SessionBooks::Layout {
  std::atomic<uint32_t> magic;
  uint32_t version;
  uint64_t bytes;
  uint32_t crc32c;  // of the facts
  uint32_t reserved;
  std::atomic<uint64_t> welcomed;
  std::atomic<int64_t> kept_until_nanoseconds;  // 0: its client lives
  std::atomic<uint64_t> barred;
  std::atomic<uint64_t> arena_bytes;
  std::atomic<uint64_t> workspace_bytes;
  std::atomic<uint64_t> moment;
  // Places from this one on were never used, so their pages are not read.
  std::atomic<uint64_t> places_used;
  FactsRecord facts;
  JobRecord job;
  alignas(4096) TransferRecord transfers[kBooksTransfers];
  alignas(4096) char names[shm::kMaxChunks][kNameSlotBytes];
};

size_t SessionBooks::Bytes() { return sizeof(Layout); }

absl::StatusOr<SessionBooks> SessionBooks::Create(std::span<std::byte> memory,
                                                  const SessionFacts& facts) {
  if (memory.size() < Bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the books of a session need ", Bytes(), " bytes, not ", memory.size()));
  }
  auto* layout = reinterpret_cast<Layout*>(memory.data());
  const SessionSpec& spec = facts.spec;
  FactsRecord& record = layout->facts;
  if (!PutText(spec.tenant, record.tenant) || !PutText(spec.job, record.job) ||
      !PutText(spec.client, record.client) || !PutText(spec.run, record.run)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tenant ", spec.tenant.substr(0, shm::kNameBytes), ": its name has ",
                     spec.tenant.size(), " bytes; at most ", kMaxTenantBytes - 1, " are allowed"));
  }
  record.id = shm::Value(facts.id);
  record.opened_at_nanoseconds = facts.opened_at.nanoseconds();
  record.pid = spec.pid;
  record.uid = spec.uid;
  record.weight = spec.weight;
  record.rank = spec.rank;
  record.world_size = spec.world_size;
  record.local_rank = spec.local_rank;
  record.local_world_size = spec.local_world_size;
  record.device_asked = shm::Value(spec.device);
  record.device = shm::Value(facts.device);
  record.death_policy = static_cast<uint32_t>(spec.death_policy);
  record.token = facts.token;
  layout->version = kBooksVersion;
  layout->bytes = Bytes();
  layout->crc32c = shm::Crc32c(&record, sizeof(record));
  layout->magic.store(kBooksMagic, std::memory_order_release);
  SessionBooks books(layout);
  books.CollectFree();
  return books;
}

absl::StatusOr<SessionBooks> SessionBooks::Open(std::span<std::byte> memory) {
  auto* layout = reinterpret_cast<Layout*>(memory.data());
  if (memory.size() < sizeof(uint64_t) * 2 || layout->magic.load() != kBooksMagic) {
    return absl::DataLossError("the books of a session were never written");
  }
  if (layout->version != kBooksVersion || layout->bytes != Bytes() || memory.size() < Bytes()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the books of a session have version ", layout->version, ", this release knows version ",
        kBooksVersion, "; start the release that wrote them"));
  }
  if (layout->crc32c != shm::Crc32c(&layout->facts, sizeof(layout->facts))) {
    return absl::DataLossError("the books of a session contradict their checksum");
  }
  SessionBooks books(layout);
  books.CollectFree();
  for (const NotedTransfer& transfer : books.Transfers()) {
    books.next_order_ = std::max(books.next_order_, transfer.order + 1);
  }
  return books;
}

absl::StatusOr<SessionFacts> SessionBooks::Facts() const {
  const FactsRecord& record = layout_->facts;
  SessionFacts facts;
  facts.id = SessionId{record.id};
  facts.opened_at = Time::FromNanoseconds(record.opened_at_nanoseconds);
  facts.token = record.token;
  facts.device = DeviceIndex{record.device};
  SessionSpec& spec = facts.spec;
  spec.tenant = GetText(record.tenant);
  spec.job = GetText(record.job);
  spec.client = GetText(record.client);
  spec.run = GetText(record.run);
  spec.rank = record.rank;
  spec.world_size = record.world_size;
  spec.local_rank = record.local_rank;
  spec.local_world_size = record.local_world_size;
  spec.device = DeviceIndex{record.device_asked};
  spec.uid = record.uid;
  spec.pid = record.pid;
  spec.weight = record.weight;
  spec.death_policy = static_cast<shm::DeathPolicy>(record.death_policy);
  if (facts.id == kNoSession || spec.tenant.empty() || spec.job.empty()) {
    return absl::DataLossError("the books of a session name no rank");
  }
  return facts;
}

// --- single words --------------------------------------------------------------------------------

void SessionBooks::SetWelcomed() { layout_->welcomed.store(1); }
bool SessionBooks::welcomed() const { return layout_->welcomed.load() != 0; }
void SessionBooks::SetKeptUntil(Time until) {
  layout_->kept_until_nanoseconds.store(until.nanoseconds());
}
void SessionBooks::SetAttached() { layout_->kept_until_nanoseconds.store(0); }
std::optional<Time> SessionBooks::KeptUntil() const {
  const int64_t until = layout_->kept_until_nanoseconds.load();
  if (until == 0) return std::nullopt;
  return Time::FromNanoseconds(until);
}
void SessionBooks::SetBarred() { layout_->barred.store(1); }
bool SessionBooks::barred() const { return layout_->barred.load() != 0; }
void SessionBooks::SetArena(uint64_t bytes) { layout_->arena_bytes.store(bytes); }
uint64_t SessionBooks::arena_bytes() const { return layout_->arena_bytes.load(); }
void SessionBooks::SetWorkspace(uint64_t bytes) { layout_->workspace_bytes.store(bytes); }
uint64_t SessionBooks::workspace_bytes() const { return layout_->workspace_bytes.load(); }
void SessionBooks::SetMoment(uint64_t moment) {
  layout_->moment.store(moment, std::memory_order_relaxed);
}
uint64_t SessionBooks::moment() const { return layout_->moment.load(); }

// --- the job -------------------------------------------------------------------------------------

void SessionBooks::SetJob(const JobNote& note) {
  JobRecord& record = layout_->job;
  record.valid.store(0);
  if (!PutText(note.run, record.run)) return;  // cannot happen: the service refuses longer names
  record.job = Value(note.job);
  record.device_bytes = note.ask.device_bytes;
  record.host_bytes = note.ask.host_bytes;
  record.rank = note.ask.rank;
  record.ranks = note.ask.ranks;
  record.priority = note.ask.priority;
  record.device = shm::Value(note.ask.device);
  record.weight = note.weight;
  record.preemptible = note.ask.preemptible ? 1 : 0;
  record.may_wait = note.ask.may_wait ? 1 : 0;
  SetStanding(note.state, note.yielded, note.held, note.since);
  record.valid.store(1);
}

void SessionBooks::SetStanding(JobState state, bool yielded, bool held, Time since) {
  layout_->job.since_nanoseconds.store(since.nanoseconds());
  layout_->job.state.store(static_cast<uint64_t>(state) | (yielded ? kYieldedBit : 0) |
                           (held ? kHeldBit : 0));
}

void SessionBooks::ClearJob() { layout_->job.valid.store(0); }

std::optional<JobNote> SessionBooks::Job() const {
  const JobRecord& record = layout_->job;
  if (record.valid.load() == 0) return std::nullopt;
  const uint64_t state = record.state.load();
  JobNote note;
  note.job = JobId{record.job};
  note.run = GetText(record.run);
  note.ask = {.rank = record.rank,
              .ranks = record.ranks,
              .priority = record.priority,
              .device = DeviceIndex{record.device},
              .device_bytes = record.device_bytes,
              .host_bytes = record.host_bytes,
              .preemptible = record.preemptible != 0,
              .may_wait = record.may_wait != 0};
  note.weight = record.weight;
  note.state = static_cast<JobState>(state & (kYieldedBit - 1));
  note.yielded = (state & kYieldedBit) != 0;
  note.held = (state & kHeldBit) != 0;
  note.since = Time::FromNanoseconds(record.since_nanoseconds.load());
  return note;
}

// --- names ---------------------------------------------------------------------------------------

void SessionBooks::SetName(ChunkId chunk, const std::string& name) {
  char(&slot)[kNameSlotBytes] = layout_->names[shm::Index(chunk)];
  std::memset(slot, 0, sizeof(slot));
  std::memcpy(slot, name.data(), std::min(name.size(), sizeof(slot)));
}

std::string SessionBooks::NameOf(ChunkId chunk) const {
  return GetText(layout_->names[shm::Index(chunk)]);
}

// --- transfers -----------------------------------------------------------------------------------

void SessionBooks::CollectFree() {
  free_.clear();
  const uint64_t used = layout_->places_used.load();
  for (uint32_t i = kBooksTransfers; i-- > 0;) {
    const bool taken =
        i < used && layout_->transfers[i].place.load() != static_cast<uint64_t>(Place::kFree);
    if (!taken) free_.push_back(i);
  }
}

std::optional<uint32_t> SessionBooks::AddTransfer(const TransferRequest& request, Time since) {
  if (free_.empty()) return std::nullopt;
  const uint32_t place = free_.back();
  free_.pop_back();
  if (place >= layout_->places_used.load()) layout_->places_used.store(place + 1);
  TransferRecord& record = layout_->transfers[place];
  record.order = next_order_++;
  record.request_id = request.request_id;
  record.since_nanoseconds = since.nanoseconds();
  record.ticket = 0;
  record.bytes = request.bytes;
  record.source_offset = request.source_offset;
  record.destination_offset = request.destination_offset;
  record.dirty_epoch = request.dirty_epoch;
  record.source = shm::Index(request.source);
  record.destination = shm::Index(request.destination);
  record.deadline_moment = request.deadline_moment;
  record.flags = request.flags;
  record.direction = static_cast<uint8_t>(request.direction);
  record.priority = static_cast<uint8_t>(request.priority);
  record.cause = static_cast<uint8_t>(request.cause);
  record.place.store(static_cast<uint64_t>(Place::kWaits), std::memory_order_release);
  return place;
}

void SessionBooks::Grant(uint32_t place, const Ticket& ticket) {
  TransferRecord& record = layout_->transfers[place];
  record.ticket = shm::Value(ticket.id);
  record.completion_index = ticket.completion_index;
  record.granted_nanoseconds = ticket.granted_at.nanoseconds();
  record.place.store(static_cast<uint64_t>(Place::kGranted), std::memory_order_release);
}

bool SessionBooks::HasTransfer(uint64_t request_id) const {
  const std::vector<NotedTransfer> noted = Transfers();
  return std::ranges::any_of(noted, [request_id](const NotedTransfer& transfer) {
    return transfer.request.request_id == request_id;
  });
}

void SessionBooks::RemoveTransfer(uint32_t place) {
  layout_->transfers[place].place.store(static_cast<uint64_t>(Place::kFree),
                                        std::memory_order_release);
  free_.push_back(place);
}

void SessionBooks::RemoveAllTransfers() {
  for (const NotedTransfer& transfer : Transfers()) RemoveTransfer(transfer.place);
}

std::vector<NotedTransfer> SessionBooks::Transfers() const {
  std::vector<NotedTransfer> noted;
  const auto used = static_cast<uint32_t>(layout_->places_used.load());
  for (uint32_t i = 0; i < std::min(used, kBooksTransfers); ++i) {
    const TransferRecord& record = layout_->transfers[i];
    const auto place = static_cast<Place>(record.place.load(std::memory_order_acquire));
    if (place == Place::kFree) continue;
    const bool granted = place == Place::kGranted;
    noted.push_back({.place = i,
                     .request = {.request_id = record.request_id,
                                 .direction = static_cast<Direction>(record.direction),
                                 .bytes = record.bytes,
                                 .priority = static_cast<Priority>(record.priority),
                                 .cause = static_cast<TransferCause>(record.cause),
                                 .deadline_moment = record.deadline_moment,
                                 .source = ChunkId{record.source},
                                 .destination = ChunkId{record.destination},
                                 .source_offset = record.source_offset,
                                 .destination_offset = record.destination_offset,
                                 .flags = record.flags,
                                 .dirty_epoch = record.dirty_epoch,
                                 .place = i},
                     .since = Time::FromNanoseconds(granted ? record.granted_nanoseconds
                                                            : record.since_nanoseconds),
                     .ticket = granted ? TicketId{record.ticket} : kNoTicket,
                     .completion_index = record.completion_index,
                     .order = record.order});
  }
  std::ranges::sort(noted, {}, &NotedTransfer::order);
  return noted;
}

}  // namespace geminid::core
