#include "collectives/gloo/gloo_links.h"

#include <gloo/common/error.h>
#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/gloo/sigpipe_guard.h"

namespace geminid::collectives {
namespace {

constexpr uint64_t kEagerSlot = 1;
constexpr uint64_t kBulkSlot = 2;
constexpr size_t kEagerPayloadBytes = kEagerBytes - sizeof(Operation);
// How long to wait for the coordinator's word after a connection broke. It comes within
// milliseconds, unless the coordinator is gone as well.
constexpr std::chrono::milliseconds kVerdictPatience{1000};
// A new pair is waited for so many times as long as the context's timeout says, and 0 is for ever.
constexpr int kTimesGlooWaitsToConnect = 5;
// gloo adds the timeout to the clock's now, in nanoseconds.
constexpr int kLongestWaitMilliseconds = 15 * 24 * 3600 * 1000;

// gloo's view of the coordinator. gloo wants exceptions.
class MemberStore final : public gloo::rendezvous::Store {
 public:
  MemberStore(Member* member, std::string prefix, const base::Deadline& deadline,
              const Member::Look& look)
      : member_(member), prefix_(std::move(prefix)), deadline_(deadline), look_(look) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    absl::Status status = member_->Set(prefix_ + key, std::string(data.begin(), data.end()));
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  }
  std::vector<char> get(const std::string& key) override {
    auto value = member_->Get(prefix_ + key, deadline_, look_);
    if (!value.ok()) throw std::runtime_error(std::string(value.status().message()));
    return std::vector<char>(value->begin(), value->end());
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) (void)get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);  // the deadline of the whole connection holds
  }

 private:
  Member* const member_;
  const std::string prefix_;
  const base::Deadline deadline_;
  const Member::Look& look_;
};

}  // namespace

GlooLinks::GlooLinks(Options options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<GlooLinks>> GlooLinks::Connect(Options options) {
  const Member::Look look = std::exchange(options.look, nullptr);
  std::unique_ptr<GlooLinks> links(new GlooLinks(std::move(options)));
  links->options_.member->Listen(links->options_.group, links.get());
  const base::Deadline deadline = base::Deadline::In(links->options_.connect_timeout);
  if (absl::Status s = links->ConnectMesh(look, deadline); !s.ok()) {
    absl::Status known = links->failure();
    if (known.ok() && look) known = look();
    return known.ok() ? s : known;
  }
  // All have connected to this rank: what fails now fails the group, as it would a moment later.
  (void)links->Meet(links->options_.connect_timeout);
  if (look && !links->failure().ok()) GEMINID_RETURN_IF_ERROR(look());
  return links;
}

absl::Status GlooLinks::ConnectMesh(const Member::Look& look, const base::Deadline& deadline) {
  const size_t ranks = options_.world_ranks.size();
  const SigpipeGuard guard;
  try {
    auto context =
        std::make_shared<gloo::rendezvous::Context>(options_.rank, static_cast<int>(ranks));
    MemberStore store(options_.member.get(), absl::StrCat("mesh/", options_.group, "/"), deadline,
                      look);
    // Of who came and gave up, gloo would hear nothing: nobody begins before all have come.
    store.set(absl::StrCat("here/", options_.rank), {'!'});
    for (size_t r = 0; r < ranks; ++r) (void)store.get(absl::StrCat("here/", r));
    context->setTimeout(std::chrono::milliseconds(std::max(
        1, deadline.LeftMilliseconds(kLongestWaitMilliseconds) / kTimesGlooWaitsToConnect)));
    auto device = options_.device;
    context->connectFullMesh(store, device);
    std::lock_guard lock(mutex_);  // the member's thread may interrupt from now on
    context_ = std::move(context);
    eager_memory_.resize(2 * ranks * kEagerBytes);
    for (size_t i = 0; i < 2 * ranks; ++i) {
      auto& list = i < ranks ? eager_sends_ : eager_receives_;
      list.push_back(
          context_->createUnboundBuffer(eager_memory_.data() + i * kEagerBytes, kEagerBytes));
    }
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect group \"", options_.group, "\" over TCP: ", error.what()));
  }
  return absl::OkStatus();
}

absl::Status GlooLinks::Meet(absl::Duration timeout) {
  const Operation meeting = {.kind = OpKind::kBarrier};
  Parcels parcels{.sent = meeting, .expected = meeting};
  for (int r = 0; r < static_cast<int>(options_.world_ranks.size()); ++r) {
    if (r == options_.rank) continue;
    parcels.sends.push_back({.peer = r});
    parcels.receives.push_back({.peer = r});
  }
  return Exchange(parcels, timeout);
}

GlooLinks::~GlooLinks() {
  options_.member->Unlisten(options_.group);
  options_.member->ReportLeave(options_.group);
  buffers_.clear();
  eager_sends_.clear();
  eager_receives_.clear();
}

absl::Status GlooLinks::Exchange(const Parcels& parcels, absl::Duration timeout) {
  Running running(this, parcels, timeout);
  GEMINID_RETURN_IF_ERROR(running.Begin());
  GEMINID_RETURN_IF_ERROR(running.Admit());
  return running.Complete();
}

GlooLinks::Running::Running(GlooLinks* links, const Parcels& parcels, absl::Duration timeout)
    : links_(links), parcels_(parcels), timeout_(timeout), deadline_(base::Deadline::In(timeout)) {}

GlooLinks::Running::~Running() { links_->DropBuffers(); }

absl::Status GlooLinks::Running::Begin() {
  GEMINID_RETURN_IF_ERROR(links_->failure());
  const SigpipeGuard guard;
  return links_->Start(parcels_.sent, parcels_.sends, parcels_.receives, &bulk_sends_);
}

absl::Status GlooLinks::Running::Admit() {
  const SigpipeGuard guard;
  const Waiting waiting{parcels_.expected, timeout_, deadline_};
  return links_->ReceiveHeads(waiting, parcels_.receives, &bulk_receives_);
}

absl::Status GlooLinks::Running::Complete() {
  const SigpipeGuard guard;
  const Waiting waiting{parcels_.receives.empty() ? parcels_.sent : parcels_.expected, timeout_,
                        deadline_};
  return links_->Complete(waiting, parcels_.sends, parcels_.receives, bulk_sends_, bulk_receives_);
}

absl::Status GlooLinks::Start(const Operation& operation, std::span<const Sending> sends,
                              std::span<const Receiving> receives,
                              std::vector<UnboundBuffer*>* bulk_sends) {
  int peer = -1;
  try {
    for (const Receiving& receive : receives) {
      peer = receive.peer;
      eager_receives_[static_cast<size_t>(peer)]->recv(peer, kEagerSlot);
    }
    for (const Sending& send : sends) {
      peer = send.peer;
      UnboundBuffer& eager = *eager_sends_[static_cast<size_t>(peer)];
      auto* head = static_cast<std::byte*>(eager.ptr);
      std::memcpy(head, &operation, sizeof(operation));
      size_t head_bytes = sizeof(operation);
      UnboundBuffer* bulk = nullptr;
      if (send.bytes > kEagerPayloadBytes) {
        auto created = NewBuffer(const_cast<std::byte*>(send.data), send.bytes);
        if (!created.ok()) return created.status();
        bulk = *created;
      } else if (send.bytes > 0) {
        std::memcpy(head + sizeof(operation), send.data, send.bytes);
        head_bytes += send.bytes;
      }
      eager.send(peer, kEagerSlot, 0, head_bytes);
      if (bulk != nullptr) bulk->send(peer, kBulkSlot);
      bulk_sends->push_back(bulk);
    }
  } catch (const std::exception&) {
    return AwaitVerdict(peer);
  }
  return absl::OkStatus();
}

absl::Status GlooLinks::ReceiveHeads(const Waiting& waiting, std::span<const Receiving> receives,
                                     std::vector<UnboundBuffer*>* bulk_receives) {
  for (size_t i = 0; i < receives.size(); ++i) {
    const Receiving& receive = receives[i];
    UnboundBuffer* eager = eager_receives_[static_cast<size_t>(receive.peer)].get();
    const Ending ending = Await(eager, /*receiving=*/true, waiting.deadline);
    if (ending != Ending::kDone) {
      // Whose head has come by now is not late; a wait for one that has come returns at once.
      std::vector<int> late = {receive.peer};
      for (const Receiving& other : receives.subspan(i + 1)) {
        UnboundBuffer* head = eager_receives_[static_cast<size_t>(other.peer)].get();
        if (Await(head, true, base::Deadline::In(absl::ZeroDuration())) != Ending::kDone) {
          late.push_back(other.peer);
        }
      }
      return Explain(waiting, ending, receive.peer, late);
    }
    Operation other;
    const auto* head = static_cast<const std::byte*>(eager->ptr);
    std::memcpy(&other, head, sizeof(other));
    if (!(other == waiting.operation)) {
      Operation own = waiting.operation;
      if (own.kind == OpKind::kSend) own.kind = OpKind::kReceive;
      return Fail(MismatchError(options_.rank, own, receive.peer, other));
    }
    UnboundBuffer* bulk = nullptr;
    if (receive.bytes > kEagerPayloadBytes) {
      auto created = NewBuffer(receive.data, receive.bytes);
      if (!created.ok()) return created.status();
      bulk = *created;
      try {
        bulk->recv(receive.peer, kBulkSlot);
      } catch (const std::exception&) {
        return AwaitVerdict(receive.peer);
      }
    } else if (receive.bytes > 0) {
      std::memcpy(receive.data, head + sizeof(other), receive.bytes);
    }
    bulk_receives->push_back(bulk);
  }
  return absl::OkStatus();
}

absl::Status GlooLinks::Complete(const Waiting& waiting, std::span<const Sending> sends,
                                 std::span<const Receiving> receives,
                                 const std::vector<UnboundBuffer*>& bulk_sends,
                                 const std::vector<UnboundBuffer*>& bulk_receives) {
  for (size_t i = 0; i < receives.size(); ++i) {
    if (bulk_receives[i] == nullptr) continue;
    const Ending ending = Await(bulk_receives[i], /*receiving=*/true, waiting.deadline);
    if (ending != Ending::kDone) {
      return Explain(waiting, ending, receives[i].peer, {receives[i].peer});
    }
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    UnboundBuffer* eager = eager_sends_[static_cast<size_t>(sends[i].peer)].get();
    Ending ending = Await(eager, /*receiving=*/false, waiting.deadline);
    if (ending == Ending::kDone && bulk_sends[i] != nullptr) {
      ending = Await(bulk_sends[i], /*receiving=*/false, waiting.deadline);
    }
    if (ending != Ending::kDone) {
      return Explain(waiting, ending, sends[i].peer, {sends[i].peer});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<gloo::transport::UnboundBuffer*> GlooLinks::NewBuffer(void* data, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  buffers_.push_back(context_->createUnboundBuffer(data, bytes));
  return buffers_.back().get();
}

void GlooLinks::DropBuffers() {
  std::vector<std::unique_ptr<UnboundBuffer>> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(buffers_);
}

GlooLinks::Ending GlooLinks::Await(UnboundBuffer* buffer, bool receiving,
                                   const base::Deadline& deadline) {
  const std::chrono::milliseconds limit(deadline.LeftMilliseconds(kLongestWaitMilliseconds));
  try {
    const bool done = receiving ? buffer->waitRecv(limit) : buffer->waitSend(limit);
    return done ? Ending::kDone : Ending::kInterrupted;
  } catch (const std::exception&) {
    return Ending::kBroken;
  }
}

absl::Status GlooLinks::Explain(const Waiting& waiting, Ending ending, int peer,
                                const std::vector<int>& late) {
  if (ending == Ending::kBroken && waiting.deadline.Passed() && failure().ok()) {
    return Fail(TimeoutError(waiting.operation, late, options_.rank, waiting.timeout));
  }
  return AwaitVerdict(peer);
}

// The coordinator tells all ranks the same story. Without it, what happened to `peer` here counts.
absl::Status GlooLinks::AwaitVerdict(int peer) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kVerdictPatience,
                    [&] { return !failure_.ok() || left_.count(peer) != 0; });
  if (!failure_.ok()) return failure_;
  Record(left_.count(peer) != 0 ? LeftError(peer) : DeathError(peer));
  absl::Status status = failure_;
  lock.unlock();
  options_.member->ReportFailure(options_.group, status);
  return status;
}

void GlooLinks::Abort(const absl::Status& status) {
  OnFailure(status);
  options_.member->ReportFailure(options_.group, status);
}

absl::Status GlooLinks::Fail(const absl::Status& status) {
  options_.member->ReportFailure(options_.group, status);
  {
    // Our own report comes back as everybody's verdict, or an earlier one does.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kVerdictPatience, [&] { return !failure_.ok(); });
    if (!failure_.ok()) return failure_;
  }
  OnFailure(status);
  return failure();
}

std::set<int> GlooLinks::left() const {
  std::lock_guard lock(mutex_);
  return left_;
}

void GlooLinks::Watch(std::function<void(const absl::Status&)> watcher) {
  std::lock_guard lock(mutex_);
  watcher_ = std::move(watcher);
  if (watcher_ && !failure_.ok()) watcher_(failure_);
}

void GlooLinks::Record(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  if (watcher_) watcher_(status);
}

absl::Status GlooLinks::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void GlooLinks::OnFailure(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  Record(status);
  changed_.notify_all();
  Interrupt();
}

void GlooLinks::OnDeath(const Death& death) {
  const auto found =
      std::find(options_.world_ranks.begin(), options_.world_ranks.end(), death.rank);
  if (found == options_.world_ranks.end()) return;
  Death of_group = death;
  of_group.rank = static_cast<int>(found - options_.world_ranks.begin());
  OnFailure(DeathError(of_group));
}

void GlooLinks::OnLeave(int world_rank) {
  const auto found =
      std::find(options_.world_ranks.begin(), options_.world_ranks.end(), world_rank);
  if (found == options_.world_ranks.end()) return;
  std::lock_guard lock(mutex_);
  left_.insert(static_cast<int>(found - options_.world_ranks.begin()));
  changed_.notify_all();
}

// An abort is remembered by the buffer until its next wait, so a wait that is about to begin ends
// too. Waits that are over have taken their answer.
void GlooLinks::Interrupt() {
  auto abort = [](const std::vector<std::unique_ptr<UnboundBuffer>>& buffers) {
    for (const auto& buffer : buffers) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  };
  abort(buffers_);
  abort(eager_sends_);
  abort(eager_receives_);
}

}  // namespace geminid::collectives
