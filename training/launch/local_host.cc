#include "training/launch/local_host.h"

#include <unistd.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "training/launch/restarts.h"
#include "training/launch/run_memory.h"
#include "training/launch/stop_signals.h"

extern char** environ;

namespace geminid::trainer {
namespace {

// This process's own, but for the names in `added`.
std::vector<std::string> EnvironmentWith(const Variables& added) {
  std::set<std::string> names;
  std::vector<std::string> environment;
  for (const auto& [name, value] : added) {
    names.insert(name);
    environment.push_back(absl::StrCat(name, "=", value));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!names.contains(text.substr(0, text.find('=')))) environment.push_back(text);
  }
  return environment;
}

}  // namespace

LocalHost::LocalHost(std::string program, Variables environment, const sigset_t& signal_mask)
    : program_(std::move(program)),
      environment_(std::move(environment)),
      signal_mask_(signal_mask) {}

sigset_t LocalHost::MaskOfRanks() const {
  sigset_t mask = signal_mask_;
  if (handover_ == nullptr || !handover_->complete().has_value()) return mask;
  const sigset_t watched = WatchedSignals();
  sigorset(&mask, &signal_mask_, &watched);
  return mask;
}

absl::Status LocalHost::Start(const std::vector<RankStart>& starts) {
  processes_.clear();
  absl::Status started = StartRanks(starts);
  if (!started.ok()) processes_.clear();  // none is left of a group that is not whole
  return started;
}

absl::Status LocalHost::StartRanks(const std::vector<RankStart>& starts) {
  if (!run_memory_.valid()) {
    GEMINID_ASSIGN_OR_RETURN(run_memory_, MakeRunMemory());
  }
  const sigset_t mask = MaskOfRanks();
  processes_.reserve(starts.size());
  for (const RankStart& start : starts) {
    Variables added = environment_;
    added.insert(added.end(), start.environment.begin(), start.environment.end());
    added.emplace_back(kStartedAtVariable, absl::StrCat(absl::ToUnixNanos(base::MonotonicNow())));
    added.emplace_back(kLauncherVariable, absl::StrCat(getpid()));
    added.emplace_back(kRunMemoryVariable, absl::StrCat(run_memory_.get()));
    std::vector<int> inherited = {run_memory_.get()};
    if (handover_ != nullptr) {
      added.emplace_back(kHandoverVariable, absl::StrCat(handover_->fd()));
      inherited.push_back(handover_->fd());
    }
    GEMINID_ASSIGN_OR_RETURN(
        RankProcess process,
        RankProcess::Start(start.rank, program_, start.arguments, EnvironmentWith(added), mask,
                           std::move(inherited)));
    processes_.push_back(std::move(process));
  }
  return absl::OkStatus();
}

std::vector<RankState*> LocalHost::ranks() {
  std::vector<RankState*> ranks;
  for (RankProcess& process : processes_) ranks.push_back(&process.state());
  return ranks;
}

void LocalHost::Signal(int signal) {
  for (const RankProcess& process : processes_) process.Signal(signal);
}

void LocalHost::AddTo(std::vector<pollfd>* fds) const {
  for (const RankProcess& process : processes_) {  // poll passes over negative descriptors
    fds->push_back({process.process_fd(), POLLIN, 0});
    fds->push_back({process.stderr_fd(), POLLIN, 0});
  }
}

void LocalHost::Look(absl::Time) {
  for (RankProcess& process : processes_) process.Look();
}

}  // namespace geminid::trainer
