#include "training/launch/run_place.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/counted.h"
#include "training/launch/host_name.h"
#include "training/launch/state_pieces.h"

namespace geminid::trainer {
namespace {

// How soon the run hears that a person has ended it. The daemon counts a request as failed when it
// gets no message about it for a minute.
constexpr absl::Duration kBetweenWords = absl::Seconds(1);

}  // namespace

RunPlace::RunPlace(std::shared_ptr<RankHost> first, Options options)
    : options_(std::move(options)), at_{std::move(first), ""} {}

RunPlace::~RunPlace() {
  if (job_ended_ || (!origin_.has_value() && !carries())) return;
  if (origin_.has_value() && followed_at_ > absl::InfinitePast()) {
    Arrive();
  } else {
    TellOrigin("refused", "the run ends");
  }
}

absl::Time RunPlace::Now() const { return options_.now ? options_.now() : base::MonotonicNow(); }

void RunPlace::Say(const std::string& words) const {
  if (options_.say) options_.say(absl::StrCat("geminid-train: ", words, "\n"));
}

void RunPlace::AddTo(std::vector<pollfd>* fds) const {
  if (destination_) destination_->host->AddTo(fds);
  if (origin_) origin_->host->AddTo(fds);
  if (carries()) at_.host->AddTo(fds);
}

absl::Time RunPlace::look_by() const {
  absl::Time by = absl::InfiniteFuture();
  if (destination_) by = std::min(by, destination_->host->look_by());
  if (destination_ && !is_answered_) by = std::min(by, give_up_at_);
  if (origin_) by = std::min(by, origin_->host->look_by());
  if (carries()) by = std::min(by, at_.host->look_by());
  if (!job_ended_ && (origin_ || carries())) by = std::min(by, told_at_ + kBetweenWords);
  if (Now() < free_at_) by = std::min(by, free_at_);
  return by;
}

void RunPlace::Look() {
  const absl::Time now = Now();
  if (destination_) destination_->host->Look(now);
  if (origin_) origin_->host->Look(now);
  EndIfAsked();
  if (job_ended_) return;  // ranks at the new host are ended, and the run goes nowhere
  if (carries()) {
    at_.host->Look(now);
    Carry();
  } else {
    if (origin_) FollowArrival();
    Follow();
  }
  KeepAsking();
}

// --- while the ranks train -----------------------------------------------------------------------

void RunPlace::Follow() {
  const std::optional<MoveRequest> wanted = at_.host->wanted();
  if (wanted.has_value() ? wanted->request != wanted_ : wanted_ != 0) {
    GiveUpDestination();
    if (wanted.has_value()) Prepare(*wanted);
  }
  if (!destination_) return;
  RankHost& host = *destination_->host;
  const bool waits = host.failure().ok() && !host.ready();
  if (waits && Now() >= give_up_at_) host.GiveUp(options_.patience);
  if (!host.failure().ok()) {
    status_ = host.failure();
    Answer(status_);
    destination_->host->Leave();
    destination_.reset();
  } else if (host.ready() && !is_answered_) {
    Answer(absl::OkStatus());
  }
}

void RunPlace::Prepare(const MoveRequest& wanted) {
  absl::Status status = CheckHostName(wanted.host);
  if (status.ok() && (wanted.host == at_.name || wanted.host == at_.host->name())) {
    status = absl::FailedPreconditionError(absl::StrCat("the run is at ", wanted.host, " already"));
  }
  if (status.ok() && origin_) {
    status = absl::FailedPreconditionError(
        absl::StrCat("the run has come to ", at_.name,
                     " just now, and the host before still has its state; ask "
                     "again after the next step"));
  }
  if (status.ok() && !options_.reach) {
    status = absl::FailedPreconditionError("its launcher reaches no other host");
  }
  if (status.ok()) {
    absl::StatusOr<std::shared_ptr<RankHost>> host = options_.reach(wanted);
    status = host.status();
    if (host.ok()) destination_ = {*std::move(host), wanted.host};
  }
  wanted_ = wanted.request;
  if (!status.ok()) return Answer(status);
  give_up_at_ = Now() + options_.patience;
  Say(absl::StrCat("makes ", wanted.host, " ready to go on there with ",
                   base::Counted(wanted.ranks, "rank")));
}

void RunPlace::Answer(const absl::Status& status) {
  is_answered_ = true;
  at_.host->Answer(wanted_, status);
}

void RunPlace::GiveUpDestination() {
  wanted_ = 0;
  is_answered_ = false;
  if (!destination_) return;
  destination_->host->Leave();
  destination_.reset();
}

// --- between two hosts ---------------------------------------------------------------------------

void RunPlace::GoTo(const std::string& name, const std::string& why) {
  const absl::Status lost = std::exchange(status_, absl::OkStatus());
  if (origin_ && name == origin_->name) {
    free_at_ = at_.host->ends_by();
    const absl::Duration wait = std::max(absl::ZeroDuration(), free_at_ - Now());
    Say(absl::StrCat(
        "goes back from ", at_.name, ": ", why,
        wait == absl::ZeroDuration()
            ? ""
            : absl::StrCat("; first its ranks there get ",
                           absl::FormatDuration(absl::Ceil(wait, absl::Seconds(1))), " to end")));
    at_.host->Leave();
    at_ = *std::move(origin_);
    origin_.reset();
  }
  if (name == at_.name) {
    GiveUpDestination();
    if (move_.request != 0 && !why.empty()) {  // for the ranks that start here again
      at_.host->Answer(move_.request, absl::UnavailableError(why));
    }
    return;
  }
  move_ = at_.host->handover().value_or(Handover());
  if (!destination_ || destination_->name != name || move_.host != name) {
    status_ =
        lost.ok() ? absl::FailedPreconditionError(absl::StrCat(name, " was not made ready")) : lost;
    return;
  }
  followed_at_ = absl::InfinitePast();
  told_at_ = Now();
  carried_ = 0;
  Say(absl::StrCat("carries ", base::FormatBytes(move_.bytes), " of state to ", name));
  at_.host->BeginToSend();
  destination_->host->BeginToReceive(move_);
  Carry();
}

void RunPlace::FailToCarry(const absl::Status& why) {
  status_ = why;
  carried_.reset();
  GiveUpDestination();
}

void RunPlace::Carry() {
  RankHost& from = *at_.host;
  RankHost& to = *destination_->host;
  if (!to.failure().ok()) return FailToCarry(to.failure());
  if (!from.failure().ok()) return FailToCarry(from.failure());
  while (*carried_ < BytesOnTheWay(move_) && to.takes_piece()) {
    const std::optional<std::string> piece = from.TakePiece();
    if (!piece.has_value()) break;
    to.AddPiece(*piece);
    *carried_ += piece->size();
  }
  if (!to.failure().ok()) return FailToCarry(to.failure());
  const std::optional<Handover> there = to.handover();
  if (!there.has_value() || there->number != move_.number) return;
  carried_.reset();
  origin_ = std::exchange(at_, *std::move(destination_));
  destination_.reset();
  GiveUpDestination();
}

void RunPlace::FollowArrival() {
  const std::optional<Handover> there = at_.host->handover();
  const bool is_first_step = followed_at_ == absl::InfinitePast();
  if (is_first_step && (!there.has_value() || there->followed)) followed_at_ = Now();
  if (!there.has_value()) Arrive();
}

// The ranks do not need the old host's state any more.
void RunPlace::Arrive() {
  const absl::Duration took = absl::Trunc(followed_at_ - move_.began, absl::Milliseconds(1));
  const std::string words = absl::StrCat(
      "goes on at ", at_.name, " as ", base::Counted(move_.ranks_after, "rank"), " after step ",
      move_.step, ", ", absl::FormatDuration(took), " after that step");
  Say(words);
  TellOrigin("done", words);
  origin_->host->Leave();
  origin_.reset();
  move_ = Handover();
}

void RunPlace::TellOrigin(const std::string& state, const std::string& message) {
  told_at_ = Now();
  if (move_.request == 0) return;
  RankHost& host = origin_ ? *origin_->host : *at_.host;
  host.Tell({.request = move_.request, .state = state, .message = message});
}

void RunPlace::EndIfAsked() {
  if (job_ended_ || (!origin_ && !carries())) return;
  if (!(origin_ ? origin_ : at_)->host->job_ended()) return;
  job_ended_ = true;
  TellOrigin("ended", "");
  if (carries()) FailToCarry(absl::CancelledError("the job was ended on request"));
}

void RunPlace::KeepAsking() {
  if ((origin_ || carries()) && Now() - told_at_ >= kBetweenWords) TellOrigin("taken", "");
}

}  // namespace geminid::trainer
