#include "training/launch/host_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/status_macros.h"
#include "training/launch/host_name.h"
#include "training/launch/remote_host.h"

namespace geminid::trainer {
namespace {

HostSpread SpreadOver(const std::vector<HostSlots>& hosts) {
  std::vector<int> slots;
  for (const HostSlots& host : hosts) slots.push_back(host.ranks);
  return HostSpread(std::move(slots));
}

}  // namespace

HostList::HostList(Options options)
    : options_(std::move(options)),
      spread_(SpreadOver(options_.hosts)),
      hosts_(options_.hosts.size()) {}

absl::Time HostList::Now() const { return options_.now ? options_.now() : base::MonotonicNow(); }

absl::Status HostList::Connect(int ranks) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<int> ranks_by_host, spread_.Of(ranks));
  std::vector<RankHost*> pointers;
  for (size_t i = 0; i < ranks_by_host.size(); ++i) {
    GEMINID_ASSIGN_OR_RETURN(hosts_[i], options_.reach(options_.hosts[i], std::nullopt));
    pointers.push_back(hosts_[i].get());
  }
  used_ = pointers.size();
  return AwaitHosts(pointers, options_.patience);
}

std::set<std::string> HostList::lost() const {
  std::set<std::string> lost;
  for (size_t i = 0; i < used_; ++i) {
    if (hosts_[i] != nullptr && !hosts_[i]->failure().ok()) lost.insert(options_.hosts[i].name);
  }
  return lost;
}

std::string HostList::AddressOfFirst(int ranks) const {
  const absl::StatusOr<std::vector<int>> ranks_by_host = spread_.Of(ranks);
  const bool is_alone = !ranks_by_host.ok() || ranks_by_host->size() == 1;
  return is_alone ? "127.0.0.1" : AddressOf(options_.hosts.front().name);
}

// Before the first rank starts all hosts are there: ranks alone would wait for the others.
absl::Status HostList::Start(const std::vector<RankStart>& starts) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<int> ranks_by_host,
                           spread_.Of(static_cast<int>(starts.size())));
  used_ = ranks_by_host.size();
  for (size_t i = 0; i < used_; ++i) {
    const RankHost* const host = hosts_[i].get();
    if (host != nullptr) GEMINID_RETURN_IF_ERROR(host->failure());
    if (host != nullptr && host->ready()) continue;
    return absl::UnavailableError(absl::StrCat(options_.hosts[i].name, " is not ready"));
  }
  const std::optional<Handover> state = handover();
  is_adopted_ = state.has_value();
  growth_ = {};
  auto next = starts.begin();
  for (size_t i = 0; i < used_; ++i) {
    std::vector<RankStart> here(next, next + ranks_by_host[i]);
    next += ranks_by_host[i];
    for (RankStart& start : here) {
      start.environment.emplace_back(kHostSlotsVariable, spread_.Text());
    }
    if (i > 0) hosts_[i]->Adopt(state);
    GEMINID_RETURN_IF_ERROR(hosts_[i]->Start(here));
  }
  return absl::OkStatus();
}

std::vector<RankState*> HostList::ranks() {
  std::vector<RankState*> ranks;
  for (size_t i = 0; i < used_; ++i) {
    const std::vector<RankState*> here = hosts_[i]->ranks();
    ranks.insert(ranks.end(), here.begin(), here.end());
  }
  return ranks;
}

void HostList::Signal(int signal) {
  for (size_t i = 0; i < used_; ++i) hosts_[i]->Signal(signal);
}

void HostList::AddTo(std::vector<pollfd>* fds) const {
  for (const auto& host : hosts_) {
    if (host != nullptr) host->AddTo(fds);
  }
}

absl::Time HostList::look_by() const {
  absl::Time by = absl::InfiniteFuture();
  for (const auto& host : hosts_) {
    if (host != nullptr) by = std::min(by, host->look_by());
  }
  if (growth_.request != 0 && !growth_.is_answered) by = std::min(by, growth_.give_up_at);
  return by;
}

void HostList::Look(absl::Time now) {
  for (const auto& host : hosts_) {
    if (host != nullptr) host->Look(now);
  }
  FollowGrowthRequest();
  LetGo();
}

absl::Status HostList::failure() const { return first()->failure(); }

void HostList::Leave() {
  for (auto& host : hosts_) {
    if (host != nullptr) host->Leave();
  }
}

// --- ranks that come -----------------------------------------------------------------------------

void HostList::FollowGrowthRequest() {
  const std::optional<MoveRequest> wanted = first()->wanted();
  const uint64_t request = wanted.has_value() && wanted->host.empty() ? wanted->request : 0;
  if (request != growth_.request) {
    growth_ = {.request = request, .give_up_at = Now() + options_.patience};
    if (request == 0) return;
    if (const absl::Status invited = Invite(*wanted); !invited.ok()) {
      growth_.is_answered = true;
      return first()->Answer(request, invited);
    }
  }
  if (request != 0 && !growth_.is_answered) AwaitInvited();
}

// Those that are to have their first ranks.
absl::Status HostList::Invite(const MoveRequest& wanted) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<int> ranks_by_host, spread_.Of(wanted.ranks));
  for (size_t i = used_; i < ranks_by_host.size(); ++i) {
    if (hosts_[i] != nullptr) hosts_[i]->Leave();
    MoveRequest there = wanted;
    there.ranks = ranks_by_host[i];
    there.state_bytes = 0;  // it comes to the ranks alone
    there.host_bytes = wanted.host_bytes / static_cast<uint64_t>(wanted.ranks) *
                       static_cast<uint64_t>(there.ranks);
    if (options_.say) {
      options_.say(absl::StrCat("geminid-train: makes ", options_.hosts[i].name, " ready for ",
                                base::Counted(there.ranks, "rank"), "\n"));
    }
    GEMINID_ASSIGN_OR_RETURN(hosts_[i], options_.reach(options_.hosts[i], there));
  }
  return absl::OkStatus();
}

void HostList::AwaitInvited() {
  bool waits = false;
  for (size_t i = used_; i < hosts_.size(); ++i) {
    RankHost* const host = hosts_[i].get();
    if (host == nullptr) continue;
    if (host->failure().ok() && !host->ready() && Now() >= growth_.give_up_at) {
      host->GiveUp(options_.patience);
    }
    if (const absl::Status failure = host->failure(); !failure.ok()) {
      growth_.is_answered = true;
      return first()->Answer(growth_.request, failure);
    }
    waits = waits || !host->ready();
  }
  if (waits) return;
  growth_.is_answered = true;
  first()->Answer(growth_.request, absl::OkStatus());
}

// Of hosts that nobody goes to or back to, and of state that nobody needs.
void HostList::LetGo() {
  if (handover().has_value()) return;
  for (size_t i = 1; i < hosts_.size() && is_adopted_; ++i) {
    if (hosts_[i] != nullptr) hosts_[i]->Adopt(std::nullopt);
  }
  is_adopted_ = false;
  for (size_t i = used_; i < hosts_.size() && growth_.request == 0; ++i) {
    if (hosts_[i] == nullptr) continue;
    hosts_[i]->Leave();
    hosts_[i].reset();
  }
}

// --- of the first host ---------------------------------------------------------------------------

std::optional<Handover> HostList::handover() const { return first()->handover(); }

std::optional<MoveRequest> HostList::wanted() const {
  std::optional<MoveRequest> wanted = first()->wanted();
  return wanted.has_value() && wanted->host.empty() ? std::nullopt : wanted;
}

void HostList::Answer(uint64_t request, const absl::Status& status) {
  first()->Answer(request, status);
}

void HostList::Tell(const MoveOutcome& outcome) { first()->Tell(outcome); }

void HostList::BeginToSend() { first()->BeginToSend(); }

std::optional<std::string> HostList::TakePiece() { return first()->TakePiece(); }

}  // namespace geminid::trainer
