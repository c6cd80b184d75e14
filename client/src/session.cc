#include "geminid/session.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "client/src/daemon_ended.h"
#include "client/src/session_impl.h"
#include "client/src/session_internal.h"
#include "client/src/wire.h"
#include "proto/shm/lease.h"

namespace geminid {
namespace {

shm::StateWord StateOf(const SessionImpl& impl, ChunkId chunk) {
  if (impl.fork_guard->in_child() || impl.chunks.Find(chunk) == nullptr) return {};
  return shm::StateWord::Decode(
      impl.segments.state()->state[Index(chunk)].load(std::memory_order_acquire));
}

bool HasExtent(const shm::StateWord& word) {
  return word.residency >= shm::Residency::kFilling && word.residency <= shm::Residency::kEvicting;
}

}  // namespace

Session::Session(std::unique_ptr<SessionImpl> impl) : impl_(std::move(impl)) {
  impl_->on_demand_loader = std::make_unique<OnDemandLoader>(this, impl_->transfers.get());
}

std::unique_ptr<Session> SessionImpl::MakeSession(std::unique_ptr<SessionImpl> impl) {
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

SessionImpl& SessionImpl::Of(const Session& session) { return *session.impl_; }

Session::~Session() {
  // A forked child lacks the mappings and the threads that closing the session needs.
  if (impl_->fork_guard->in_child()) {
    [[maybe_unused]] SessionImpl* const left_alone = impl_.release();
  } else {
    impl_->Close();
  }
}

void Session::LeaveToSuccessor() { impl_->is_left.store(true); }
bool Session::is_successor() const { return impl_->successor > 0; }

absl::Status CheckNotForked(const Session& session) {
  return SessionImpl::Of(session).CheckUsable();
}

bool IsOfRun(const Session& session) { return !SessionImpl::Of(session).options.run.empty(); }

bool OwnsDaemon(const Session& session) {
  return SessionImpl::Of(session).private_daemon != nullptr;
}

absl::Status EndedOnRequest(const Session& session) {
  const auto& header = SessionImpl::Of(session).segments.state()->header;
  const bool ended =
      header.phase.load(std::memory_order_acquire) == static_cast<uint32_t>(shm::Phase::kEnded);
  return ended ? JobEnded() : absl::OkStatus();
}

bool IsLeft(const Session& session) { return SessionImpl::Of(session).is_left.load(); }

std::string NameOfRank(const Session& session) {
  const ConnectOptions& options = SessionImpl::Of(session).options;
  return options.run.empty() ? "" : NameOfRank(options.job, options.rank, options.run);
}

std::string NameOfRank(const std::string& job, int rank, const std::string& run) {
  base::Fnv1a hash;
  hash.AddText(run);
  hash.Add(::geteuid());
  return absl::StrCat(job, "-rank", rank, "-", absl::Hex(hash.value()));
}

bool IsKept(const Session& session) { return SessionImpl::Of(session).options.keep_on_death; }

void AtDetach(Session& session, std::function<void()> call) {
  SessionImpl::Of(session).at_detach.push_back(std::move(call));
}

const std::string& Session::socket() const { return impl_->socket; }
uint64_t Session::id() const { return impl_->session_id; }
const DeviceDescription& Session::device_description() const { return impl_->device_description; }
std::byte* Session::arena() const { return impl_->arena; }
uint64_t Session::arena_bytes() const { return impl_->arena_bytes; }
absl::StatusOr<std::unique_ptr<Stream>> Session::MakeStream(const std::string& name) {
  return impl_->device->MakeStream(name);
}

Stream& Session::compute_stream() { return impl_->device->compute_stream(); }

std::byte* Session::HostAddress(std::byte* address) const {
  return impl_->device->HostAddress(address);
}

std::byte* Session::Home(ChunkId chunk) const {
  const ChunkTable::Chunk* found = impl_->chunks.Find(chunk);
  return found == nullptr ? nullptr : found->home;
}

uint64_t Session::Bytes(ChunkId chunk) const {
  const ChunkTable::Chunk* found = impl_->chunks.Find(chunk);
  return found == nullptr ? 0 : found->bytes.load(std::memory_order_relaxed);
}

Residency Session::ResidencyOf(ChunkId chunk) const {
  return static_cast<Residency>(StateOf(*impl_, chunk).residency);
}

uint64_t Session::DeviceOffset(ChunkId chunk) const {
  const shm::StateWord word = StateOf(*impl_, chunk);
  return HasExtent(word) ? word.device_offset() : kAnyOffset;
}

std::byte* Session::Device(ChunkId chunk) const {
  const uint64_t offset = DeviceOffset(chunk);
  return offset == kAnyOffset ? nullptr : impl_->arena + offset;
}

absl::Status SessionImpl::CheckUsable() const {
  if (!fork_guard->in_child()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this session, with its engine, belongs to the parent process; connect anew in the forked "
      "child");
}

absl::Status Session::Healthy() const {
  absl::Status usable = impl_->CheckUsable();
  return usable.ok() ? impl_->port->status() : usable;
}

void Session::AddStall(StallCause cause, absl::Duration waited) {
  if (waited <= absl::ZeroDuration() || impl_->fork_guard->in_child()) return;
  const auto nanoseconds = static_cast<uint64_t>(absl::ToInt64Nanoseconds(waited));
  impl_->segments.client()->counters.stall_nanoseconds[static_cast<int>(cause)].fetch_add(
      nanoseconds, std::memory_order_relaxed);
}

absl::Duration Session::Queued() const {
  if (impl_->fork_guard->in_child()) return absl::ZeroDuration();
  return absl::Nanoseconds(static_cast<int64_t>(
      impl_->segments.client()->counters.queued_nanoseconds.load(std::memory_order_relaxed)));
}

std::array<absl::Duration, kStallCauses> Session::Stalls() const {
  std::array<absl::Duration, kStallCauses> stalls;
  if (impl_->fork_guard->in_child()) return stalls;
  for (size_t cause = 0; cause < stalls.size(); ++cause) {
    stalls[cause] = absl::Nanoseconds(
        static_cast<int64_t>(impl_->segments.client()->counters.stall_nanoseconds[cause].load(
            std::memory_order_relaxed)));
  }
  return stalls;
}

void Session::SetStep(uint64_t step) {
  if (impl_->fork_guard->in_child()) return;
  impl_->segments.client()->counters.step.store(step, std::memory_order_relaxed);
}

void Session::SetWorkspace(uint64_t bytes) {
  if (impl_->fork_guard->in_child()) return;
  impl_->segments.client()->counters.workspace_bytes.store(bytes, std::memory_order_relaxed);
}

HostRegistration Session::GetHostRegistration() const { return impl_->device->host_registration(); }

TransferTotals Session::Totals() const { return impl_->transfers->totals(); }

RequestPace RequestPaceOf(const Session& session) {
  const SessionImpl& impl = SessionImpl::Of(session);
  return {impl.segments.client()->cursor.requests_written.load(std::memory_order_relaxed),
          impl.segments.state()->cursor.requests_read.load(std::memory_order_relaxed)};
}

device::Device* DeviceOf(Session& session) { return SessionImpl::Of(session).device.get(); }

shm::ClientCounters* CountersOf(Session& session) {
  return &SessionImpl::Of(session).segments.client()->counters;
}

shm::CommitSegment* CommitSegmentOf(Session& session) {
  return SessionImpl::Of(session).segments.commit();
}

}  // namespace geminid
