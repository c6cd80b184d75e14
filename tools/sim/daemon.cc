#include "tools/sim/daemon.h"

#include <algorithm>
#include <utility>

namespace geminid::sim {

using core::ChunkId;
using core::SessionId;

Daemon::Daemon(EventQueue* events, const DaemonOptions& options)
    : events_(events), request_seconds_(options.request_seconds) {
  blocks_.resize(core::Manifest::BytesFor(2 * options.chunk_records) / sizeof(Block) + 1);
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(EventQueue* events,
                                                       const DaemonOptions& options) {
  std::unique_ptr<Daemon> daemon(new Daemon(events, options));
  absl::StatusOr<core::Manifest> manifest = core::Manifest::Create(
      {daemon->blocks_.front().bytes, daemon->blocks_.size() * sizeof(Block)}, /*epoch=*/1);
  if (!manifest.ok()) return manifest.status();
  core::EngineOptions engine;
  engine.host_capacity_bytes = options.host_bytes;
  engine.devices = {core::HostDevice(core::DeviceIndex{0}, options.device_bytes)};
  engine.max_sessions = 2 * options.sessions;  // one tenant has half of them
  engine.transfers = options.transfers;
  core::Tables* tables = daemon.get();
  daemon->engine_ = std::make_unique<core::Engine>(engine, tables, *std::move(manifest));
  return daemon;
}

absl::StatusOr<SessionId> Daemon::Open(const core::SessionSpec& spec, uint64_t arena_bytes,
                                       Receive receive) {
  absl::StatusOr<SessionId> session = engine_->OpenSession(spec, events_->now());
  if (!session.ok()) return session.status();
  clients_[*session].receive = std::move(receive);
  absl::StatusOr<uint64_t> arena = engine_->CreateArena(*session, arena_bytes);
  if (!arena.ok()) return arena.status();
  return session;
}

absl::StatusOr<core::Allocation> Daemon::Allocate(SessionId session,
                                                  const std::vector<core::ChunkSpec>& specs) {
  return engine_->Allocate(session, specs);
}

void Daemon::GiveBack(const core::Releases& releases) {
  for (const core::ChargeId charge : releases.charges) engine_->GiveBack(charge);
}

absl::Status Daemon::Kill(SessionId session) {
  Client& client = clients_[session];
  ++client.incarnation;
  client.leases.clear();
  const absl::StatusOr<core::Releases> releases =
      engine_->CloseSession(session, core::CloseReason::kDied, events_->now());
  if (releases.ok()) GiveBack(*releases);
  return releases.status();
}

absl::Status Daemon::Reopen(SessionId session, const core::SessionSpec& spec, Receive receive) {
  clients_[session].receive = std::move(receive);
  absl::Status status = engine_->ReopenSession(session, spec, events_->now());
  ScheduleTick();
  return status;
}

void Daemon::Send(SessionId session, const shm::Request& request) {
  const QueuedRequest arrived{session, IncarnationOf(session), request};
  events_->After(FromSeconds(request_seconds_), [this, arrived] {
    if (running_) {
      Handle(arrived);
    } else {
      waiting_.push_back(arrived);
    }
  });
}

void Daemon::Start() {
  running_ = true;
  tick_at_.reset();
  ScheduleTick();
  for (const QueuedRequest& arrived : std::exchange(waiting_, {})) Handle(arrived);
}

void Daemon::WriteCompletion(SessionId session, uint16_t index, uint64_t ticket) {
  clients_[session].completions[index] = ticket;
}

void Daemon::WriteLease(SessionId session, ChunkId chunk, uint64_t word) {
  clients_[session].leases[chunk] = word;
}

shm::StateWord Daemon::State(SessionId session, ChunkId chunk) {
  return shm::StateWord::Decode(clients_[session].states[chunk]);
}

void Daemon::PublishState(SessionId session, ChunkId chunk, uint64_t word) {
  clients_[session].states[chunk] = word;
}

uint64_t Daemon::ReadLease(SessionId session, ChunkId chunk) {
  return clients_[session].leases[chunk];
}

uint64_t Daemon::ReadCompletion(SessionId session, uint16_t index) {
  return clients_[session].completions[index];
}

void Daemon::Handle(const QueuedRequest& arrived) {
  if (arrived.incarnation != IncarnationOf(arrived.session)) return;
  std::vector<core::Outgoing> out;
  engine_->HandleRequest(arrived.session, arrived.request, events_->now(), &out);
  Deliver(out);
  ScheduleTick();
}

void Daemon::Deliver(const std::vector<core::Outgoing>& out) {
  for (const core::Outgoing& outgoing : out) {
    const uint64_t incarnation = IncarnationOf(outgoing.session);
    events_->After(FromSeconds(request_seconds_), [this, outgoing, incarnation] {
      if (incarnation != IncarnationOf(outgoing.session)) return;
      // A copy of the function, because calling it may end the session.
      const Receive receive = clients_[outgoing.session].receive;
      receive(outgoing);
    });
  }
}

// One scheduled tick at a time: an early tick only schedules the next one.
void Daemon::ScheduleTick() {
  const std::optional<core::Time> next = engine_->NextTick();
  if (!next.has_value() || (tick_at_.has_value() && *tick_at_ <= *next)) return;
  tick_at_ = *next;
  events_->At(*next, [this, at = *next] {
    if (tick_at_ != at || !running_) return;
    tick_at_.reset();
    std::vector<core::Outgoing> out;
    GiveBack(engine_->Tick(events_->now(), &out));
    Deliver(out);
    ScheduleTick();
  });
}

}  // namespace geminid::sim
