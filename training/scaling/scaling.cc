#include "training/scaling/scaling.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/machine_memory.h"
#include "base/status_macros.h"
#include "client/checkpoint/agreement.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/crash_points.h"
#include "training/data/data_sum.h"
#include "training/launch/handover_memory.h"
#include "training/ranks/daemon_choice.h"
#include "training/scaling/handover_timeout.h"

namespace geminid::trainer {
namespace {

constexpr absl::Duration kBetweenPolls = absl::Milliseconds(200);
// A daemon that does not answer must not hold up steps.
constexpr absl::Duration kAnswer = absl::Seconds(1);
constexpr absl::Duration kAfterNoAnswer = absl::Seconds(10);

constexpr char kTaken[] = "taken";
constexpr char kDone[] = "done";
constexpr char kRefused[] = "refused";

constexpr char kRunEnds[] = "the run ends";

constexpr size_t kLongestMessage = 1024;

// Whether the daemon did not get the message. A message that it rejected would be rejected again.
bool MayBeSaidAgain(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

// The first bytes of the message, up to the end of a UTF-8 character.
std::string Shortened(const std::string& message) {
  if (message.size() <= kLongestMessage) return message;
  size_t bytes = kLongestMessage;
  while (bytes > 0 && (static_cast<unsigned char>(message[bytes]) & 0xc0) == 0x80) --bytes;
  return message.substr(0, bytes);
}

}  // namespace

Scaling::Scaling(const TrainOptions& options, const RankContext& context, Session* session,
                 collectives::Communicator* communicator, zero::ModelState* state,
                 const std::vector<zero::Parameter>* parameters, Warn warn)
    : options_(options),
      context_(context),
      session_(session),
      communicator_(communicator),
      state_(state),
      parameters_(parameters),
      warn_(std::move(warn)) {
  if (!leads_host()) return;
  daemon_ = std::make_unique<JobScaling>(context.socket, kAnswer);
  const bool is_shared =
      leads() && context.handover != nullptr && context.handover->share().has_value();
  if (is_shared) share_.emplace(options, context);
}

bool Scaling::leads_host() const { return LeadsHost(context_); }

absl::StatusOr<int> Scaling::Here(int ranks) const {
  const int world = context_.info.world_size;
  GEMINID_ASSIGN_OR_RETURN(const std::vector<int> now, context_.spread.Of(world));
  GEMINID_ASSIGN_OR_RETURN(const std::vector<int> then, context_.spread.Of(ranks));
  const size_t host = HostByRank(now)[static_cast<size_t>(context_.info.rank)];
  return host < then.size() ? then[host] : 0;
}

absl::StatusOr<std::unique_ptr<SpreadState>> Scaling::SpreadOf(const StateImage& image) const {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<int> hosts,
                           context_.spread.Of(context_.info.world_size));
  const HandoverMemory* const memory = context_.handover.get();
  const bool has_parts = memory != nullptr && memory->complete().has_value() &&
                         memory->mapped_bytes() != image.bytes();
  if (hosts.size() == 1 && !has_parts) return nullptr;
  return std::make_unique<SpreadState>(communicator_, &image, HostByRank(hosts));
}

// --- taking over ---------------------------------------------------------------------------------

// Also called if these ranks resume from their own memory.
void Scaling::ChargeInheritedState() {
  if (!leads_host() || context_.handover == nullptr) return;
  const std::optional<Handover> left = context_.handover->complete();
  const uint64_t bytes = context_.handover->held_bytes();
  if (!left.has_value() || bytes == 0) return;
  const absl::Status charged = Charge(bytes);
  if (charged.ok()) return;  // training does not depend on that
  warn_(absl::StrCat("geminid-train: the daemon's ledger lacks the ", base::FormatBytes(bytes),
                     " of the state that was handed over, until it is in the ranks' memory: ",
                     std::string(charged.message())));
}

absl::StatusOr<std::optional<RunPosition>> Scaling::TakeOver() {
  const HandoverMemory* const memory = context_.handover.get();
  const std::optional<Handover> left = memory == nullptr ? std::nullopt : memory->complete();
  if (!left.has_value()) return std::nullopt;
  GEMINID_ASSIGN_OR_RETURN(const StateImage image, StateImage::Of(state_, *parameters_));
  absl::StatusOr<RunPosition> position = ReadState(image);
  GEMINID_RETURN_IF_ERROR(checkpoint::Agree(communicator_, checkpoint::Phase::kTakeOver, left->step,
                                            position.status()));
  GEMINID_RETURN_IF_ERROR(checkpoint::Agree(communicator_, checkpoint::Phase::kRestoreHandover,
                                            left->step, state_->Restore(position->progress)));
  zero::CrashPoint("state taken over");
  ranks_before_ = left->ranks_before;
  return *std::move(position);
}

absl::StatusOr<RunPosition> Scaling::ReadState(const StateImage& image) const {
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<SpreadState> spread, SpreadOf(image));
  const absl::StatusOr<base::Mapping> mapping =
      context_.handover->Map(context_.handover->mapped_bytes());
  if (spread != nullptr) {
    GEMINID_RETURN_IF_ERROR(checkpoint::Agree(communicator_, checkpoint::Phase::kTakeOver,
                                              context_.handover->complete()->step,
                                              mapping.status()));
    return spread->Take(HandoverMemory::StateIn(*mapping));
  }
  GEMINID_RETURN_IF_ERROR(mapping.status());
  const auto bytes = HandoverMemory::StateIn(*mapping);
  GEMINID_ASSIGN_OR_RETURN(RunPosition position, image.ReadPosition(bytes));
  GEMINID_RETURN_IF_ERROR(image.Read(bytes));
  return position;
}

// When every rank has begun the second step, each has committed the first, from which it can be
// started again.
void Scaling::AfterStep(uint64_t trained, const ShareStep& step) {
  TellOutcome();
  if (share_) share_->AfterStep(step);
  if (NeedsLauncher() && !context_.handover->wanted().has_value()) {
    if (const absl::Status wanted = WantMove(); !wanted.ok()) Refuse(wanted);
  }
  constexpr uint64_t kAllHaveCommitted = 2;
  HandoverMemory* const memory = context_.handover.get();
  if (trained == 1 && memory != nullptr && leads()) memory->NoteFollowed();
  // On other hosts the state goes when the launcher has heard that of the first rank.
  if (charge_ && !leads() && !memory->complete().has_value()) FreeCharge();
  if (trained != kAllHaveCommitted || memory == nullptr || !leads()) return;
  if (!memory->complete().has_value()) return;
  outcome_.has_shrunk = context_.restarts.has_shrunk;
  memory->Release();
  FreeCharge();
  zero::CrashPoint("state released");
}

// --- requests ------------------------------------------------------------------------------------

std::string Scaling::WhyNot() const {
  if (is_closed_) return kRunEnds;
  if (options_.zero.state_disk.endurance_bytes > 0) {
    return "its --state-disk-endurance limits what each rank writes, and new ranks would count "
           "from 0; save a checkpoint and resume it";
  }
  if (context_.handover != nullptr) return "";
  if (!context_.is_launched) {
    return "its ranks were not started by geminid-train's own launcher; start it with --ranks, "
           "--restarts or --max-ranks";
  }
  return "its launcher got no memory for the state (memfd_create); save a checkpoint and resume it";
}

// To go on at another host, or for a host that joins.
bool Scaling::NeedsLauncher() const {
  if (asked_.number == 0 || context_.handover == nullptr) return false;
  if (!asked_.host.empty()) return true;
  const auto now = context_.spread.Of(context_.info.world_size);
  const auto then = context_.spread.Of(asked_.ranks);
  return now.ok() && then.ok() && then->size() > now->size();
}

bool Scaling::HasUnreportedOutcome() const {
  return context_.handover != nullptr && context_.handover->untold_request() != 0;
}

// Tells the outcome that an earlier start could not tell.
void Scaling::TellOutcome() {
  HandoverMemory* const memory = context_.handover.get();
  if (!leads() || !HasUnreportedOutcome() || asked_.number != 0) return;
  const std::optional<Handover> left = memory->complete();
  const int ranks = context_.info.world_size;
  const bool done = left.has_value() && left->ranks_after == ranks && left->host.empty();
  asked_.number = memory->untold_request();
  if (done) {
    const absl::Duration took =
        absl::Trunc(base::MonotonicNow() - left->began, absl::Milliseconds(1));
    Tell(kDone, absl::StrCat("goes on as ", base::Counted(ranks, "rank"), " after step ",
                             left->step, ", ", absl::FormatDuration(took), " after that step"));
  } else {
    Tell(kRefused, WhyUndone(left, ranks));
  }
  memory->NoteTold();
}

std::string Scaling::WhyUndone(const std::optional<Handover>& left, int ranks) const {
  std::string why = "a rank failed while the number of ranks was changed";
  if (left.has_value() && !left->host.empty()) {
    const std::optional<absl::Status> answer = context_.handover->answer(left->request);
    why = absl::StrCat("the run did not go on at ", left->host,
                       answer.has_value() && !answer->ok()
                           ? absl::StrCat(": ", std::string(answer->message()))
                           : "");
  }
  return absl::StrCat(why, "; the job goes on as ", base::Counted(ranks, "rank"),
                      ", and its output says more");
}

absl::StatusOr<JobScaling::RankChange> Scaling::Offer() {
  JobScaling::Offer offer = {.session = session_->id(),
                             .job = options_.job,
                             .run = context_.info.job,
                             .ranks = context_.info.world_size,
                             .why_not = WhyNot(),
                             .outcome = outcome_};
  if (share_) offer.share = share_->Make(session_->arena_bytes());
  absl::StatusOr<JobScaling::RankChange> answer = daemon_->Make(offer);
  next_poll_ = base::MonotonicNow() + (answer.ok() ? kBetweenPolls : kAfterNoAnswer);
  if (!MayBeSaidAgain(answer.status())) outcome_ = {};
  return answer;
}

// If the daemon is not running, it gets the outcome with a later offer.
void Scaling::Tell(const std::string& state, const std::string& message) {
  outcome_ = {asked_.number, state, Shortened(message), outcome_.has_shrunk};
  if (state != kTaken) {
    if (NeedsLauncher()) context_.handover->Unwant();
    asked_ = {};
  }
  Offer().IgnoreError();
}

void Scaling::Refuse(const absl::Status& why) {
  if (!leads() || asked_.number == 0) return;
  Tell(kRefused, absl::StrCat(std::string(why.message()), "; the job goes on as before"));
}

// Without this, the daemon would refuse the request only after a minute without ranks.
void Scaling::Close() {
  if (!leads()) return;
  is_closed_ = true;
  if (asked_.number == 0 && HasUnreportedOutcome()) {
    asked_.number = context_.handover->untold_request();
    context_.handover->NoteTold();
  } else if (asked_.number == 0) {
    asked_ = Offer().value_or(JobScaling::RankChange());
  }
  if (asked_.number != 0) Tell(kRefused, kRunEnds);
}

int Scaling::Poll(absl::Time now) {
  if (!leads()) return 0;
  if (NeedsLauncher()) return PollMove();
  // All ranks know by now of a request that was taken. One of an earlier start is told of first.
  if (asked_.number != 0 || HasUnreportedOutcome()) return 0;
  if (now < next_poll_) return 0;
  const absl::StatusOr<JobScaling::RankChange> answer = Offer();
  if (!answer.ok() || answer->number == 0) return 0;  // the next poll asks again
  asked_ = *answer;
  absl::Status fits = CheckRanks(answer->ranks);
  if (fits.ok() && !answer->host.empty()) fits = CheckMove();
  if (!fits.ok()) {
    Refuse(fits);
    return 0;
  }
  return NeedsLauncher() ? 0 : answer->ranks;  // the launcher hears of a host after the step
}

absl::Status Scaling::CheckRanks(int ranks) {
  if (ranks < 1) return absl::InvalidArgumentError("a run has at least 1 rank");
  if (context_.check_ranks) GEMINID_RETURN_IF_ERROR(context_.check_ranks(ranks));
  if (!asked_.host.empty()) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(context_.spread.Of(ranks).status());
  return CheckDevices(ranks);
}

absl::Status Scaling::CheckMove() const {
  if (context_.handover == nullptr) return absl::FailedPreconditionError(WhyNot());
  GEMINID_ASSIGN_OR_RETURN(const std::vector<int> hosts,
                           context_.spread.Of(context_.info.world_size));
  if (hosts.size() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("its ranks are on ", hosts.size(),
                     " hosts, and a run goes from one host to another; scale "
                     "it to ",
                     hosts.front(), " or fewer ranks first, which are on one"));
  }
  if (options_.zero.state_disk.folders.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "its --state-disk has the optimizer's state in files of this host; save a checkpoint and "
      "resume it there");
}

// Called between two steps.
absl::Status Scaling::WantMove() {
  if (context_.handover->complete().has_value()) {
    return absl::FailedPreconditionError(
        "the state of the last change is still needed; ask again after the next step");
  }
  MoveRequest move = {.request = asked_.number, .host = asked_.host, .ranks = asked_.ranks};
  GEMINID_ASSIGN_OR_RETURN(const StateImage image, StateImage::Of(state_, *parameters_));
  move.state_bytes = image.bytes();
  move.rank_device_bytes =
      RankDeviceBytes(options_, {context_.info.world_size, session_->arena_bytes()}, asked_.ranks);
  GEMINID_ASSIGN_OR_RETURN(const std::vector<JobScaling::Rank> ranks,
                           daemon_->GetRanks(options_.job, /*run=*/""));
  for (const JobScaling::Rank& rank : ranks) move.host_bytes += rank.host_bytes;
  if (!ranks.empty()) {  // those of this host, for all
    move.host_bytes =
        move.host_bytes * static_cast<uint64_t>(context_.info.world_size) / ranks.size();
  }
  if (context_.data != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(move.data, SumOfData(*context_.data));
  }
  context_.handover->Want(move);
  return absl::OkStatus();
}

int Scaling::PollMove() {
  const std::optional<absl::Status> answer = context_.handover->answer(asked_.number);
  if (!answer.has_value()) return 0;
  if (answer->ok()) return asked_.ranks;
  Refuse(*answer);
  return 0;
}

// Of this rank's host, for those of `ranks` ranks that are on it.
absl::Status Scaling::CheckDevices(int ranks) const {
  GEMINID_ASSIGN_OR_RETURN(const int here, Here(context_.info.world_size));
  GEMINID_ASSIGN_OR_RETURN(const int here_then, Here(ranks));
  if (here_then <= here) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const std::vector<JobScaling::Device> devices, daemon_->GetDevices());
  if (session_->device_description().kind == DeviceKind::kCuda &&
      static_cast<size_t>(here_then) > devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        base::Counted(here_then, "rank"), " need a GPU each, and this host has ", devices.size()));
  }
  const uint64_t now = session_->arena_bytes();
  const uint64_t then = RankDeviceBytes(options_, {context_.info.world_size, now}, ranks);
  return CheckRoom({here_then, then}, {here, now}, DevicesOf(options_, devices));
}

// --- handing over --------------------------------------------------------------------------------

absl::Status Scaling::Charge(uint64_t bytes) {
  GEMINID_ASSIGN_OR_RETURN(
      const std::vector<ChunkHandle> charged,
      session_->Allocate({{"state for other ranks", ChunkKind::kShared, bytes}}));
  charge_ = charged.front().id;
  return absl::OkStatus();
}

void Scaling::FreeCharge() {
  if (!charge_.has_value()) return;
  session_->Free(std::array{*charge_}).IgnoreError();  // otherwise the session's end frees it
  charge_.reset();
}

absl::Status Scaling::MakeRoom(Handover wanted, const StateImage& image,
                               const SpreadState* spread) {
  if (context_.handover == nullptr) return absl::FailedPreconditionError(WhyNot());
  // The first rank has asked its own daemon before.
  if (!leads()) GEMINID_RETURN_IF_ERROR(CheckDevices(wanted.ranks_after));
  if (context_.handover->complete().has_value()) {
    return absl::FailedPreconditionError(
        "the state of the last change of ranks is still needed; ask again after the next step");
  }
  wanted.request = asked_.number;
  wanted.ranks_before = context_.info.world_size;
  wanted.host = asked_.host;
  wanted.words = context_.run_memory.Kept(RunNote::kMesh);
  std::vector<StatePart> parts = {{.offset = 0, .bytes = wanted.bytes}};
  if (spread != nullptr) {
    parts = image.PartsWithTable(*spread->here());
    wanted.bytes = image.BytesWithTable(*spread->here());
  } else {
    wanted.number = context_.handover->NextNumber();
  }
  uint64_t held = 0;
  for (const StatePart& part : parts) held += part.bytes;
  if (const absl::Status charged = Charge(held); !charged.ok()) {
    return absl::Status(
        charged.code(),
        absl::StrCat("while the number of ranks changes, ", base::FormatBytes(held),
                     " of host memory hold the state a second time, which do not fit: ",
                     std::string(charged.message())));
  }
  GEMINID_RETURN_IF_ERROR(
      context_.handover->BeginParts(wanted, parts, base::AvailableMemoryBytes()));
  if (spread == nullptr) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const base::Mapping mapping, context_.handover->Map(wanted.bytes));
  image.WriteTable(*spread->here(), HandoverMemory::StateIn(mapping));
  return absl::OkStatus();
}

// This rank's shards; of the first rank where the run stands, too.
absl::Status Scaling::WriteState(const StateImage& image, SpreadState* spread,
                                 const RunPosition& position) const {
  const absl::StatusOr<base::Mapping> mapping =
      context_.handover->Map(context_.handover->mapped_bytes());
  if (spread != nullptr) {  // nobody waits for what a rank without memory would send
    GEMINID_RETURN_IF_ERROR(checkpoint::Agree(communicator_, checkpoint::Phase::kHandOver,
                                              position.progress.step, mapping.status()));
  }
  GEMINID_RETURN_IF_ERROR(mapping.status());
  const std::span<std::byte> state = HandoverMemory::StateIn(*mapping);
  const absl::Status placed = leads() ? image.WritePosition(position, state) : absl::OkStatus();
  const absl::Status written = spread != nullptr ? spread->Leave(state) : image.Write(state);
  return placed.ok() ? written : placed;
}

// Undoes what was begun for a handover. Returns false.
bool Scaling::Stay(const absl::Status& why) {
  if (!leads_host()) return false;
  const bool is_new = context_.handover != nullptr && !context_.handover->complete().has_value();
  if (is_new) {
    context_.handover->Release();
    context_.handover->NoteTold();
    FreeCharge();
  }
  if (!leads()) return false;
  const int ranks = context_.info.world_size;
  warn_(absl::StrCat("geminid-train: stays at ", base::Counted(ranks, "rank"),
                     asked_.host.empty() ? "" : ", where it is", ": ", std::string(why.message())));
  Refuse(why);
  return false;
}

absl::StatusOr<bool> Scaling::HandOver(int ranks, const checkpoint::RunState& run,
                                       checkpoint::Health health,
                                       const std::function<absl::StatusOr<bool>()>& ends) {
  const absl::Time began = base::MonotonicNow();
  GEMINID_ASSIGN_OR_RETURN(const StateImage image, StateImage::Of(state_, *parameters_));
  const absl::Duration usual = communicator_->timeout();
  const absl::Cleanup restore = [&] { communicator_->SetTimeout(usual); };
  communicator_->SetTimeout(
      HandoverTimeout(WorkOf(options_, context_, ranks, image.bytes()), usual));
  GEMINID_ASSIGN_OR_RETURN(const zero::Progress progress, state_->GetProgress());
  // If one rank fails, all ranks give up the handover and go on. If the agreement itself fails
  // because a rank has died, HandOver returns the error.
  absl::Status refused;
  const auto agree = [&](checkpoint::Phase phase,
                         const absl::Status& mine) -> absl::StatusOr<bool> {
    refused = checkpoint::Agree(communicator_, phase, progress.step, mine);
    if (refused.ok()) return true;
    GEMINID_RETURN_IF_ERROR(communicator_->health());
    return false;
  };
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<SpreadState> spread, SpreadOf(image));
  Handover wanted = {
      .ranks_after = ranks, .step = progress.step, .bytes = image.bytes(), .began = began};
  if (spread != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(const std::vector<int> hosts, context_.spread.Of(ranks));
    if (context_.handover != nullptr) wanted.number = context_.handover->NextNumber();
    GEMINID_RETURN_IF_ERROR(spread->PlanToLeave(hosts.size(), &wanted.number));
  }
  const bool makes_room = leads_host() && (spread == nullptr || spread->here() != nullptr);
  const absl::Status has_room =
      makes_room ? MakeRoom(wanted, image, spread.get()) : absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(bool good, agree(checkpoint::Phase::kBeginHandover, has_room));
  if (!good) return Stay(refused);
  // Not earlier: from here on a later start knows of the request and tells its outcome.
  if (leads() && asked_.number != 0) Tell(kTaken, "");
  zero::CrashPoint("handover begun");
  absl::Status written = WriteState(image, spread.get(), {progress, run, health});
  written.Update(EndedOnRequest(*session_));
  zero::CrashPoint("shards handed over");
  GEMINID_ASSIGN_OR_RETURN(good, agree(checkpoint::Phase::kHandOver, written));
  if (!good) return Stay(refused);
  GEMINID_ASSIGN_OR_RETURN(const bool is_to_end, ends());
  if (is_to_end) return Stay(absl::CancelledError("the run was asked to end"));
  zero::CrashPoint("all shards handed over");
  if (leads()) context_.handover->Complete();
  // No rank goes before the commit. One that has died since the last agreement changes nothing.
  communicator_->Barrier().IgnoreError();
  zero::CrashPoint("handover complete");
  // No rank frees its own state before this. A rank that dies later is not needed any more.
  const absl::Status finished = checkpoint::Agree(communicator_, checkpoint::Phase::kFinishHandover,
                                                  progress.step, absl::OkStatus());
  if (spread != nullptr && !spread->is_on_first_host()) {
    GEMINID_RETURN_IF_ERROR(finished);
  } else if (!context_.handover->complete().has_value()) {
    return finished.ok() ? absl::InternalError("a handover that is finished is not complete")
                         : finished;
  }
  GEMINID_RETURN_IF_ERROR(EndedOnRequest(*session_));  // then the launcher starts no further ranks
  return true;
}

}  // namespace geminid::trainer
