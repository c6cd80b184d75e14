#include "collectives/tcp/links.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/tcp/socket.h"

namespace geminid::collectives {
namespace {

// How long to wait for the coordinator's news after a connection broke. It comes within
// milliseconds, unless the coordinator is gone as well.
constexpr std::chrono::milliseconds kVerdictPatience{1000};

}  // namespace

TcpLinks::TcpLinks(Options options)
    : options_(std::move(options)), sockets_(options_.world_ranks.size()) {}

absl::StatusOr<std::unique_ptr<TcpLinks>> TcpLinks::Connect(Options options) {
  const WaitCheck look = std::exchange(options.look, nullptr);
  std::unique_ptr<TcpLinks> links(new TcpLinks(std::move(options)));
  links->wake_ = base::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!links->wake_.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  links->options_.member->events().Listen(links->options_.group, links.get());
  if (absl::Status s = links->ConnectPeers(look); !s.ok()) {
    if (!links->failure().ok()) return s;
    // Tells the others, which need not wait for this rank.
    return links->Fail(absl::IsResourceExhausted(s) ? links->OfThisRank(s) : s);
  }
  // All ranks have connected to this one: a failure now fails the group, as it soon would.
  (void)links->Meet({.kind = OpKind::kBarrier}, links->options_.connect_timeout);
  if (look && !links->failure().ok()) GEMINID_RETURN_IF_ERROR(look());
  return links;
}

absl::Status TcpLinks::OfThisRank(const absl::Status& status) const {
  return absl::Status(status.code(), absl::StrCat("rank ", options_.rank, ": ", status.message()));
}

std::string TcpLinks::purpose() const {
  return absl::StrCat("links/", options_.member->options().job, "/", options_.group);
}

absl::Status TcpLinks::ConnectPeers(const WaitCheck& look) {
  const base::Deadline deadline = base::Deadline::In(options_.connect_timeout);
  for (int peer = 0; peer < options_.rank; ++peer) {
    GEMINID_ASSIGN_OR_RETURN(sockets_[static_cast<size_t>(peer)], ConnectTo(peer, look, deadline));
  }
  GEMINID_RETURN_IF_ERROR(AwaitPeers(look, deadline));
  for (const base::UniqueFd& socket : sockets_) {
    if (socket.valid()) TuneForData(socket.get());
  }
  return absl::OkStatus();
}

absl::StatusOr<base::UniqueFd> TcpLinks::ConnectTo(int peer, const WaitCheck& look,
                                                   const base::Deadline& deadline) const {
  const int world_rank = options_.world_ranks[static_cast<size_t>(peer)];
  const RankAddress& rank_address =
      options_.member->rank_addresses()[static_cast<size_t>(world_rank)];
  const auto check = [&] { return CheckWait(look); };
  auto socket = DialTcp(rank_address.address, rank_address.port, deadline, check);
  if (absl::IsDeadlineExceeded(socket.status())) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "rank %d cannot connect to rank %d within %s: %s; ranks connect to free ports of each "
        "other: let TCP through between hosts, or name a network that does as interface_address",
        options_.rank, peer, absl::FormatDuration(options_.connect_timeout),
        std::string(socket.status().message())));
  }
  if (socket.ok()) GEMINID_RETURN_IF_ERROR(Introduce(socket->get(), purpose(), options_.rank));
  return socket;
}

absl::Status TcpLinks::AwaitPeers(const WaitCheck& look, const base::Deadline& deadline) {
  for (;;) {
    GEMINID_ASSIGN_OR_RETURN(auto arrived, options_.member->peer_listener().Take(purpose()));
    for (auto& [rank, socket] : arrived) {
      if (rank <= options_.rank || rank >= size()) continue;
      sockets_[static_cast<size_t>(rank)] = std::move(socket);
    }
    std::vector<int> absent;
    for (int peer = options_.rank + 1; peer < size(); ++peer) {
      if (!sockets_[static_cast<size_t>(peer)].valid()) absent.push_back(peer);
    }
    if (absent.empty()) return absl::OkStatus();
    GEMINID_RETURN_IF_ERROR(CheckWait(look));
    if (deadline.Passed()) {
      return absl::DeadlineExceededError(
          absl::StrFormat("%s of group \"%s\" did not connect to rank %d within %s; see what they "
                          "are doing, or raise connect_timeout",
                          NameRanks(absent), options_.group, options_.rank,
                          absl::FormatDuration(options_.connect_timeout)));
    }
    options_.member->peer_listener().Await(deadline);
  }
}

absl::Status TcpLinks::CheckWait(const WaitCheck& look) const {
  GEMINID_RETURN_IF_ERROR(failure());
  if (look) GEMINID_RETURN_IF_ERROR(look());
  return options_.member->health();
}

absl::Status TcpLinks::Meet(const Operation& operation, absl::Duration timeout) {
  ExchangeMessages messages{.sent = operation, .expected = operation};
  for (int r = 0; r < size(); ++r) {
    if (r == options_.rank) continue;
    messages.sends.push_back({.peer = r});
    messages.receives.push_back({.peer = r});
  }
  return Run(messages, timeout);
}

TcpLinks::~TcpLinks() {
  options_.member->events().Unlisten(options_.group);
  options_.member->ReportLeave(options_.group);
}

absl::Status TcpLinks::Run(const ExchangeMessages& messages, absl::Duration timeout,
                           const std::function<absl::Status()>& meanwhile) {
  GEMINID_RETURN_IF_ERROR(failure());
  const base::Deadline deadline = base::Deadline::In(timeout);
  Exchange exchange(sockets_, wake_.get(), messages);
  exchange.Advance();
  if (meanwhile) GEMINID_RETURN_IF_ERROR(RunBeside(exchange, deadline, meanwhile));
  return Complete(exchange, messages, deadline, timeout);
}

absl::Status TcpLinks::RunBeside(Exchange& exchange, const base::Deadline& deadline,
                                 const std::function<absl::Status()>& meanwhile) {
  if (exchange.IsDone()) return meanwhile();
  // Complete() queries the result afterwards.
  auto mover = base::StartThread([&] { (void)exchange.Run(deadline); });
  if (!mover.ok()) return Fail(OfThisRank(mover.status()));
  absl::Status status = meanwhile();
  (void)::eventfd_write(wake_.get(), 1);
  mover->join();
  eventfd_t calls = 0;
  (void)::eventfd_read(wake_.get(), &calls);
  return status;
}

absl::Status TcpLinks::Complete(Exchange& exchange, const ExchangeMessages& messages,
                                const base::Deadline& deadline, absl::Duration timeout) {
  for (;;) {
    GEMINID_RETURN_IF_ERROR(failure());
    switch (exchange.Run(deadline)) {
      case Exchange::Outcome::kDone:
        return absl::OkStatus();
      case Exchange::Outcome::kWoken:
        continue;  // by the failure of the group
      case Exchange::Outcome::kLate:
        return Fail(TimeoutError(messages.receives.empty() ? messages.sent : messages.expected,
                                 exchange.Late(), options_.rank, timeout));
      case Exchange::Outcome::kBroken:
        return AwaitVerdict(exchange.peer());
      case Exchange::Outcome::kMismatched: {
        Operation own = messages.expected;
        if (own.kind == OpKind::kSend) own.kind = OpKind::kReceive;
        return Fail(MismatchError(options_.rank, own, exchange.peer(), exchange.others()));
      }
    }
  }
}

// The coordinator tells all ranks the same. Without it, what this rank saw of `peer` counts.
absl::Status TcpLinks::AwaitVerdict(int peer) {
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

void TcpLinks::Abort(const absl::Status& status) {
  OnFailure(status);
  options_.member->ReportFailure(options_.group, status);
}

absl::Status TcpLinks::Fail(const absl::Status& status) {
  options_.member->ReportFailure(options_.group, status);
  {
    // This rank's report, or an earlier one, comes back as the verdict for all ranks.
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kVerdictPatience, [&] { return !failure_.ok(); });
    if (!failure_.ok()) return failure_;
  }
  OnFailure(status);
  return failure();
}

bool TcpLinks::IsGone(int rank) const {
  if (options_.member->events().IsDead(options_.world_ranks[static_cast<size_t>(rank)]))
    return true;
  std::lock_guard lock(mutex_);
  return left_.contains(rank);
}

void TcpLinks::Watch(std::function<void(const absl::Status&)> watcher) {
  std::lock_guard lock(mutex_);
  watcher_ = std::move(watcher);
  if (watcher_ && !failure_.ok()) watcher_(failure_);
}

void TcpLinks::Record(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  if (watcher_) watcher_(status);
}

absl::Status TcpLinks::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void TcpLinks::OnFailure(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  Record(status);
  changed_.notify_all();
  (void)::eventfd_write(wake_.get(), 1);  // for good: no exchange follows
}

void TcpLinks::OnDeath(const RankDeath& death) {
  const auto found =
      std::find(options_.world_ranks.begin(), options_.world_ranks.end(), death.rank);
  if (found == options_.world_ranks.end()) return;
  RankDeath of_group = death;
  of_group.rank = static_cast<int>(found - options_.world_ranks.begin());
  OnFailure(DeathError(of_group));
}

void TcpLinks::OnLeave(int world_rank) {
  const auto found =
      std::find(options_.world_ranks.begin(), options_.world_ranks.end(), world_rank);
  if (found == options_.world_ranks.end()) return;
  std::lock_guard lock(mutex_);
  left_.insert(static_cast<int>(found - options_.world_ranks.begin()));
  changed_.notify_all();
}

}  // namespace geminid::collectives
