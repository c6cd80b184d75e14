#include "training/scaling/scaling.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/machine_memory.h"
#include "base/status_macros.h"
#include "client/checkpoint/agreement.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/crash_points.h"
#include "training/data/data_sum.h"
#include "training/launch/handover_memory.h"
#include "training/ranks/daemon_choice.h"

namespace geminid::trainer {
namespace {

constexpr absl::Duration kBetweenPolls = absl::Milliseconds(200);
// A daemon that does not answer must not hold up steps.
constexpr absl::Duration kAnswer = absl::Seconds(1);
constexpr absl::Duration kAfterNoAnswer = absl::Seconds(10);
// The time to end sessions whose memory is large.
constexpr absl::Duration kEndAnswer = absl::Seconds(30);

constexpr char kTaken[] = "taken";
constexpr char kDone[] = "done";
constexpr char kRefused[] = "refused";

constexpr char kRunEnds[] = "the run ends";

constexpr size_t kLongestMessage = 1024;

// Enough to copy a run's whole state. The death of a rank is noticed at once.
constexpr absl::Duration kHandoverTimeout = absl::Hours(1);

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

absl::Status CheckRoom(const RanksOfArenas& after, const RanksOfArenas& before,
                       std::vector<JobScaling::Device> devices) {
  for (int rank = 0; rank < before.ranks && !devices.empty(); ++rank) {
    devices[static_cast<size_t>(rank) % devices.size()].free_bytes += before.arena_bytes;
  }
  const auto ranks = static_cast<uint64_t>(after.ranks);
  uint64_t fit = 0, free = 0, capacity = 0;
  for (const JobScaling::Device& device : devices) {
    fit += after.arena_bytes == 0 ? ranks : device.free_bytes / after.arena_bytes;
    free += device.free_bytes;
    capacity += device.capacity_bytes;
  }
  if (ranks <= fit) return absl::OkStatus();
  const std::string spread =
      ranks * after.arena_bytes <= free ? absl::StrCat(", in which ", fit, " of these fit") : "";
  return absl::ResourceExhaustedError(absl::StrCat(
      ranks, " ranks need ", base::FormatBytes(ranks * after.arena_bytes), " of device memory, ",
      base::FormatBytes(after.arena_bytes), " each, and ", base::FormatBytes(free), " of ",
      base::FormatBytes(capacity), " are free",
      before.ranks == 0 ? "" : absl::StrCat(" once the ", before.ranks, " ranks before have gone"),
      spread,
      "; end other jobs, start the run with a smaller --device-memory, or, where the "
      "daemon is the run's own, with --max-ranks ",
      ranks));
}

absl::Status EndEarlierRanks(const TrainOptions& options, const RankContext& context) {
  if (context.info.rank != 0 || context.restarts.jobs_before.empty()) return absl::OkStatus();
  JobScaling daemon(context.socket, std::max(kEndAnswer, options.timeout));
  for (const std::string& job : context.restarts.jobs_before) {
    collectives::RankInfo before = context.info;
    before.job = job;
    GEMINID_RETURN_IF_ERROR(daemon.EndRun(options.job, RunName(before)));
  }
  return absl::OkStatus();
}

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
  if (!leads()) return;
  daemon_ = std::make_unique<JobScaling>(context.socket, kAnswer);
  const bool is_shared = context.handover != nullptr && context.handover->share().has_value();
  if (is_shared) share_.emplace(options, context);
}

// --- taking over ---------------------------------------------------------------------------------

// Also called if these ranks resume from their own memory.
void Scaling::ChargeWhatIsLeft() {
  if (!leads() || context_.handover == nullptr) return;
  const std::optional<Handover> left = context_.handover->complete();
  if (!left.has_value()) return;
  const absl::Status charged = Charge(left->bytes);
  if (charged.ok()) return;  // training does not depend on the charge
  warn_(absl::StrCat("geminid-train: the daemon's ledger lacks the ",
                     base::FormatBytes(left->bytes),
                     " of the state that was handed over, until it is in the ranks' memory: ",
                     std::string(charged.message())));
}

absl::StatusOr<std::optional<RunPosition>> Scaling::TakeOver() {
  const HandoverMemory* const memory = context_.handover.get();
  const std::optional<Handover> left = memory == nullptr ? std::nullopt : memory->complete();
  if (!left.has_value()) return std::nullopt;
  GEMINID_ASSIGN_OR_RETURN(const StateImage image, StateImage::Of(state_, *parameters_));
  const auto take = [&]() -> absl::StatusOr<RunPosition> {
    GEMINID_ASSIGN_OR_RETURN(const base::Mapping mapping, memory->Map(left->bytes));
    const auto bytes = HandoverMemory::StateIn(mapping);
    GEMINID_ASSIGN_OR_RETURN(RunPosition position, image.ReadPosition(bytes));
    GEMINID_RETURN_IF_ERROR(image.Read(bytes));
    return position;
  };
  absl::StatusOr<RunPosition> position = take();
  GEMINID_RETURN_IF_ERROR(checkpoint::Agree(communicator_, checkpoint::Phase::kTakeOver, left->step,
                                            position.status()));
  GEMINID_RETURN_IF_ERROR(checkpoint::Agree(communicator_, checkpoint::Phase::kRestoreHandover,
                                            left->step, state_->Restore(position->progress)));
  zero::CrashPoint("state taken over");
  ranks_before_ = left->ranks_before;
  return *std::move(position);
}

// When every rank has begun the second step, every rank has committed the first one, and can be
// restarted from it. So the image is not needed after that.
void Scaling::AfterStep(uint64_t trained, const ShareStep& step) {
  TellOutcome();
  if (share_) share_->AfterStep(step);
  if (!asked_.host.empty() && !context_.handover->wanted().has_value()) {
    if (const absl::Status wanted = WantMove(); !wanted.ok()) Refuse(wanted);
  }
  constexpr uint64_t kAllHaveCommitted = 2;
  HandoverMemory* const memory = context_.handover.get();
  if (trained == 1 && memory != nullptr && leads()) memory->NoteFollowed();
  if (trained != kAllHaveCommitted || memory == nullptr || !leads()) return;
  if (!memory->complete().has_value()) return;
  memory->Release();
  FreeCharge();
  zero::CrashPoint("state released");
}

// --- requests ------------------------------------------------------------------------------------

std::string Scaling::WhyNot() const {
  if (is_closed_) return kRunEnds;
  if (options_.zero.state_disk.endurance_bytes > 0) {
    return "its --state-disk-endurance limits what each rank writes, and other ranks would count "
           "anew; save a checkpoint and resume it";
  }
  if (context_.handover != nullptr) return "";
  if (!context_.is_launched) {
    return "its ranks were not started by geminid-train's own launcher; start it with --ranks, "
           "--restarts or --max-ranks";
  }
  return "its ranks are on several hosts, and state is handed over within one, or its launcher got "
         "no memory for it (memfd_create); save a checkpoint and resume it";
}

bool Scaling::HasUntold() const {
  return context_.handover != nullptr && context_.handover->untold_request() != 0;
}

// Tells the outcome that an earlier start could not tell.
void Scaling::TellOutcome() {
  HandoverMemory* const memory = context_.handover.get();
  if (!leads() || !HasUntold() || asked_.number != 0) return;
  const std::optional<Handover> left = memory->complete();
  const int ranks = context_.info.world_size;
  const bool done = left.has_value() && left->ranks_after == ranks && left->host.empty();
  asked_.number = memory->untold_request();
  if (done) {
    const absl::Duration took =
        absl::Trunc(base::MonotonicNow() - left->began, absl::Milliseconds(1));
    Tell(kDone, absl::StrCat("goes on as ", ranks, ranks == 1 ? " rank" : " ranks", " after step ",
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
  return absl::StrCat(why, "; the job goes on as ", ranks, ranks == 1 ? " rank" : " ranks",
                      ", and its output says more");
}

absl::StatusOr<JobScaling::Asked> Scaling::Offer() {
  JobScaling::Offer offer = {.session = session_->id(),
                             .job = options_.job,
                             .run = context_.info.job,
                             .ranks = context_.info.world_size,
                             .why_not = WhyNot(),
                             .outcome = outcome_};
  if (share_) offer.share = share_->Make(session_->arena_bytes());
  absl::StatusOr<JobScaling::Asked> answer = daemon_->Make(offer);
  next_poll_ = base::MonotonicNow() + (answer.ok() ? kBetweenPolls : kAfterNoAnswer);
  if (!MayBeSaidAgain(answer.status())) outcome_ = {};
  return answer;
}

// If the daemon is not running, it gets the outcome with a later offer.
void Scaling::Tell(const std::string& state, const std::string& message) {
  outcome_ = {asked_.number, state, Shortened(message)};
  if (state != kTaken) {
    if (!asked_.host.empty() && context_.handover != nullptr) context_.handover->Unwant();
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
  if (asked_.number == 0 && HasUntold()) {
    asked_.number = context_.handover->untold_request();
    context_.handover->NoteTold();
  } else if (asked_.number == 0) {
    asked_ = Offer().value_or(JobScaling::Asked());
  }
  if (asked_.number != 0) Tell(kRefused, kRunEnds);
}

int Scaling::Poll(absl::Time now) {
  if (!leads()) return 0;
  if (!asked_.host.empty()) return PollMove();
  // A request that was taken is in progress already. An earlier start's outcome is told first.
  if (asked_.number != 0 || HasUntold()) return 0;
  if (now < next_poll_) return 0;
  const absl::StatusOr<JobScaling::Asked> answer = Offer();
  if (!answer.ok() || answer->number == 0) return 0;  // the next poll asks again
  asked_ = *answer;
  absl::Status fits = CheckRanks(answer->ranks);
  if (fits.ok() && !answer->host.empty()) fits = CheckMove();
  if (!fits.ok()) {
    Refuse(fits);
    return 0;
  }
  return answer->host.empty() ? answer->ranks : 0;  // AfterStep passes requests for a host on
}

absl::Status Scaling::CheckRanks(int ranks) {
  if (ranks < 1) return absl::InvalidArgumentError("a run has at least 1 rank");
  if (context_.check_ranks) GEMINID_RETURN_IF_ERROR(context_.check_ranks(ranks));
  const bool stays = asked_.host.empty();
  return stays && ranks > context_.info.world_size ? CheckDevices(ranks) : absl::OkStatus();
}

absl::Status Scaling::CheckMove() const {
  if (context_.handover == nullptr) return absl::FailedPreconditionError(WhyNot());
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

absl::Status Scaling::CheckDevices(int ranks) {
  GEMINID_ASSIGN_OR_RETURN(std::vector<JobScaling::Device> devices, daemon_->GetDevices());
  if (session_->device_description().kind == DeviceKind::kCuda &&
      static_cast<size_t>(ranks) > devices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ranks, " ranks are more than the ", devices.size(), " GPUs of this host"));
  }
  if (options_.device.has_value()) {  // all ranks use this device
    std::erase_if(devices, [&](const auto& device) {
      return device.number != static_cast<uint32_t>(*options_.device);
    });
  }
  const uint64_t now = session_->arena_bytes();
  const uint64_t then = RankDeviceBytes(options_, {context_.info.world_size, now}, ranks);
  return CheckRoom({ranks, then}, {context_.info.world_size, now}, std::move(devices));
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

absl::Status Scaling::MakeRoom(Handover wanted) {
  if (context_.handover == nullptr) return absl::FailedPreconditionError(WhyNot());
  if (context_.handover->complete().has_value()) {
    return absl::FailedPreconditionError(
        "the state of the last change of ranks is still needed; ask again after the next step");
  }
  if (const absl::Status charged = Charge(wanted.bytes); !charged.ok()) {
    return absl::Status(
        charged.code(),
        absl::StrCat("while the number of ranks changes, ", base::FormatBytes(wanted.bytes),
                     " of host memory hold the state a second time, which do not fit: ",
                     std::string(charged.message())));
  }
  wanted.request = asked_.number;
  wanted.ranks_before = context_.info.world_size;
  wanted.host = asked_.host;
  wanted.words = context_.run_memory.Kept(RunNote::kMesh);
  return context_.handover->Begin(std::move(wanted), base::AvailableMemoryBytes());
}

// Writes this rank's shards; the first rank also writes the position.
absl::Status Scaling::WriteState(const StateImage& image, const RunPosition& position) const {
  GEMINID_ASSIGN_OR_RETURN(const base::Mapping mapping, context_.handover->Map(image.bytes()));
  const std::span<std::byte> state = HandoverMemory::StateIn(mapping);
  if (leads()) GEMINID_RETURN_IF_ERROR(image.WritePosition(position, state));
  return image.Write(state);
}

// Undoes what was begun for a handover. Returns false.
bool Scaling::Stay(const absl::Status& why) {
  if (!leads()) return false;
  const bool is_new = context_.handover != nullptr && !context_.handover->complete().has_value();
  if (is_new) {
    context_.handover->Release();
    context_.handover->NoteTold();
    FreeCharge();
  }
  const int ranks = context_.info.world_size;
  warn_(absl::StrCat("geminid-train: stays at ", ranks, ranks == 1 ? " rank" : " ranks",
                     asked_.host.empty() ? "" : ", where it is", ": ", std::string(why.message())));
  Refuse(why);
  return false;
}

absl::StatusOr<bool> Scaling::HandOver(int ranks, const checkpoint::RunState& run,
                                       checkpoint::Health health,
                                       const std::function<absl::StatusOr<bool>()>& ends) {
  const absl::Time began = base::MonotonicNow();
  // The first rank allocates all pages, and reads from disks may be slow.
  const absl::Duration usual = communicator_->timeout();
  const absl::Cleanup restore = [&] { communicator_->SetTimeout(usual); };
  communicator_->SetTimeout(std::max(usual, kHandoverTimeout));
  GEMINID_ASSIGN_OR_RETURN(const StateImage image, StateImage::Of(state_, *parameters_));
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
  const absl::Status has_room = !leads() ? absl::OkStatus()
                                         : MakeRoom({.ranks_after = ranks,
                                                     .step = progress.step,
                                                     .bytes = image.bytes(),
                                                     .began = began});
  GEMINID_ASSIGN_OR_RETURN(bool good, agree(checkpoint::Phase::kBeginHandover, has_room));
  if (!good) return Stay(refused);
  // Not earlier: from here on a later start knows of the request and tells its outcome.
  if (leads() && asked_.number != 0) Tell(kTaken, "");
  zero::CrashPoint("handover begun");
  absl::Status written = WriteState(image, {progress, run, health});
  written.Update(EndedOnRequest(*session_));
  zero::CrashPoint("shards handed over");
  GEMINID_ASSIGN_OR_RETURN(good, agree(checkpoint::Phase::kHandOver, written));
  if (!good) return Stay(refused);
  GEMINID_ASSIGN_OR_RETURN(const bool is_to_end, ends());
  if (is_to_end) return Stay(absl::CancelledError("the run was asked to end"));
  zero::CrashPoint("all shards handed over");
  if (leads()) context_.handover->Complete();
  zero::CrashPoint("handover complete");
  // No rank frees its own state before this. A rank that dies later is not needed any more.
  const absl::Status finished = checkpoint::Agree(communicator_, checkpoint::Phase::kFinishHandover,
                                                  progress.step, absl::OkStatus());
  if (!context_.handover->complete().has_value()) {
    return finished.ok() ? absl::InternalError("a handover that is finished is not complete")
                         : finished;
  }
  GEMINID_RETURN_IF_ERROR(EndedOnRequest(*session_));  // then the launcher starts no further ranks
  return true;
}

}  // namespace geminid::trainer
