#include "training/launch/local_host.h"

#include <unistd.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/machine_memory.h"
#include "base/status_macros.h"
#include "training/launch/restarts.h"
#include "training/launch/run_memory.h"
#include "training/launch/stop_signals.h"

extern char** environ;

namespace geminid::trainer {
namespace {

// This process's environment without the names in `added`.
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
  reader_.reset();
  writer_.reset();
  failure_ = absl::OkStatus();
  if (handover_ != nullptr) {
    handover_->Unwant();
    // Frees incomplete state of ranks that died while they wrote it.
    if (!handover_->complete().has_value()) handover_->Release();
  }
  absl::Status started = StartRanks(starts);
  if (!started.ok()) processes_.clear();  // ends the ranks of an incomplete group
  return started;
}

// The noted mesh is for one number of ranks. Ranks that come from another host bring it with their
// state.
absl::Status LocalHost::MakeRunMemoryFor(int ranks) {
  if (!run_memory_.valid()) {
    GEMINID_ASSIGN_OR_RETURN(run_memory_, MakeRunMemory());
  }
  if (run_memory_ranks_ == ranks) return absl::OkStatus();
  run_memory_ranks_ = ranks;
  const std::optional<Handover> left = handover();
  const bool brings_mesh = left.has_value() && left->ranks_before == left->ranks_after;
  return RunMemory(run_memory_.get()).Keep(RunNote::kMesh, brings_mesh ? left->words : "");
}

absl::Status LocalHost::StartRanks(const std::vector<RankStart>& starts) {
  if (starts.empty()) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(MakeRunMemoryFor(starts.front().ranks));
  const sigset_t mask = MaskOfRanks();
  processes_.reserve(starts.size());
  for (const RankStart& start : starts) {
    Variables added = environment_;
    added.insert(added.end(), start.environment.begin(), start.environment.end());
    added.insert(added.end(), {{"RANK", absl::StrCat(start.rank)},
                               {"WORLD_SIZE", absl::StrCat(start.ranks)},
                               {"LOCAL_RANK", absl::StrCat(processes_.size())},
                               {"LOCAL_WORLD_SIZE", absl::StrCat(starts.size())}});
    added.emplace_back(kStartedAtVariable, absl::StrCat(absl::ToUnixNanos(base::MonotonicNow())));
    added.emplace_back(kLauncherVariable, absl::StrCat(getpid()));
    added.emplace_back(kRunMemoryVariable, absl::StrCat(run_memory_.get()));
    std::vector<int> inherited = {run_memory_.get()};
    if (handover_ != nullptr) {
      added.emplace_back(kHandoverVariable, absl::StrCat(handover_->fd()));
      added.emplace_back(kHandoverWakeVariable, absl::StrCat(handover_->wake_fd()));
      inherited.insert(inherited.end(), {handover_->fd(), handover_->wake_fd()});
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
  for (const RankProcess& process : processes_) {  // poll ignores negative descriptors
    fds->push_back({process.process_fd(), POLLIN, 0});
    fds->push_back({process.stderr_fd(), POLLIN, 0});
  }
  if (handover_ != nullptr) fds->push_back({handover_->wake_fd(), POLLIN, 0});
}

void LocalHost::Look(absl::Time) {
  if (handover_ != nullptr) handover_->TakeWake();
  for (RankProcess& process : processes_) process.Look();
}

// --- state that ranks hand over ------------------------------------------------------------------

absl::Status LocalHost::MakeHandover(const std::optional<RanksRange>& share) {
  GEMINID_ASSIGN_OR_RETURN(handover_, HandoverMemory::Create());
  if (share.has_value()) handover_->SetShare(*share);
  return absl::OkStatus();
}

absl::Status LocalHost::Reserve(uint64_t bytes) {
  if (handover_ == nullptr) return absl::FailedPreconditionError("no state is handed over here");
  return handover_->Reserve(bytes, base::AvailableMemoryBytes());
}

void LocalHost::Leave() {
  reader_.reset();
  writer_.reset();
  failure_ = absl::OkStatus();
  run_memory_ranks_ = 0;
  if (handover_ == nullptr) return;
  handover_->Unwant();
  handover_->NoteTold();
  handover_->Release();
}

std::optional<Handover> LocalHost::handover() const {
  return handover_ == nullptr ? std::nullopt : handover_->complete();
}

void LocalHost::Adopt(const std::optional<Handover>& handover) {
  if (handover_ != nullptr) handover_->Adopt(handover);
}

std::optional<MoveRequest> LocalHost::wanted() const {
  return handover_ == nullptr ? std::nullopt : handover_->wanted();
}

void LocalHost::Answer(uint64_t request, const absl::Status& status) {
  if (handover_ != nullptr) handover_->Answer(request, status);
}

void LocalHost::Tell(const MoveOutcome& outcome) {
  if (teller_ != nullptr) teller_->Tell(outcome);
}

void LocalHost::BeginToSend() {
  reader_.reset();
  if (handover_ == nullptr) return;
  absl::StatusOr<StateReader> reader = StateReader::Of(*handover_);
  failure_.Update(reader.status());
  if (reader.ok()) reader_ = *std::move(reader);
}

std::optional<std::string> LocalHost::TakePiece() {
  if (!reader_.has_value()) return std::nullopt;
  std::string piece = reader_->Next();
  if (!piece.empty()) return piece;
  reader_.reset();
  return std::nullopt;
}

void LocalHost::BeginToReceive(const Handover& handover) {
  writer_.reset();
  if (handover_ == nullptr) return;
  absl::StatusOr<StateWriter> writer =
      StateWriter::Of(handover_.get(), handover, base::AvailableMemoryBytes());
  failure_ = writer.status();
  if (writer.ok()) writer_ = *std::move(writer);
}

void LocalHost::AddPiece(const std::string& piece) {
  if (!writer_.has_value()) return;
  failure_.Update(writer_->Add(piece));
  if (!failure_.ok() || handover().has_value()) writer_.reset();
}

}  // namespace geminid::trainer
