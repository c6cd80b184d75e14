#include "training/launch/launcher.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "training/launch/course.h"
#include "training/launch/handover_memory.h"
#include "training/launch/host_name.h"
#include "training/launch/local_host.h"
#include "training/launch/rank_host.h"
#include "training/launch/restarts.h"
#include "training/launch/run_place.h"
#include "training/launch/stop_signals.h"

namespace geminid::trainer {
namespace {

constexpr char kProgramName[] = "geminid-train";
constexpr size_t kProcessNameMax = 15;  // the kernel's limit
constexpr char kEndedOnTheWay[] =
    "the job was ended on request (geminictl end) while it moved to another host";

// Only the id distinguishes two jobs of one user on one host.
std::string RandomJobId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

// The variables for all ranks of a host.
Variables EnvironmentOf(const LaunchOptions& options, const Start& start) {
  const Restarts& restarts = start.restarts;
  Variables added = options.environment;
  if (restarts.most > 0) {
    added.insert(added.end(), {{kRestartCountVariable, absl::StrCat(restarts.count)},
                               {kMaxRestartsVariable, absl::StrCat(restarts.most)}});
  }
  if (restarts.failed_at.has_value()) {
    const absl::Duration ago = base::MonotonicNow() - *restarts.failed_at;
    added.emplace_back(kFailedAgoVariable, absl::StrCat(absl::ToInt64Nanoseconds(ago)));
  }
  if (restarts.may_shrink) added.emplace_back(kMayShrinkVariable, "1");
  if (restarts.has_shrunk) added.emplace_back(kHasShrunkVariable, "1");
  const auto add_number = [&](const char* name, int number) {
    if (number > 0) added.emplace_back(name, absl::StrCat(number));
  };
  add_number(kRescalesVariable, restarts.rescales);
  add_number(kShrinkToVariable, restarts.shrink_to);
  add_number(kSignalBeforeVariable, restarts.signal_before);
  if (!restarts.jobs_before.empty()) {
    added.emplace_back(kJobsBeforeVariable, absl::StrJoin(restarts.jobs_before, ","));
  }
  added.emplace_back("GEMINID_JOB_ID", start.job_id);
  return added;
}

// One start of all ranks.
class Launcher {
 public:
  // `place` is where all ranks are.
  Launcher(const LaunchOptions& options, int signal_fd, const trainer::Start& start,
           RunPlace* place)
      : options_(options), signal_fd_(signal_fd), start_(start), place_(place) {}

  absl::Status Start() {
    PollUntil([&] { return !place_->waits() || at_once_; }, absl::InfiniteFuture());
    if (at_once_) return absl::CancelledError("the run was ended at once");
    GEMINID_RETURN_IF_ERROR(place_->status());
    RankHost* const host = place_->host();
    Variables environment = EnvironmentOf(options_, start_);
    environment.emplace_back("MASTER_ADDR", host->AddressOfFirst(start_.ranks));
    std::vector<RankStart> starts;
    for (int rank = 0; rank < start_.ranks; ++rank) {
      starts.push_back({.rank = rank,
                        .ranks = start_.ranks,
                        .arguments = {RankName(rank)},
                        .environment = environment});
      std::vector<std::string>& words = starts.back().arguments;
      words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
    }
    GEMINID_RETURN_IF_ERROR(host->Start(starts));
    host_ = host;
    ranks_ = host->ranks();
    inherited_ = NumberOfHandover();
    return absl::OkStatus();
  }

  // Returns when all ranks have ended.
  void Run() {
    PollUntil(
        [&] {
          return Over() || failed_ || policy_.first() != 0 || EndedBySignal() != 0 ||
                 place_->job_ended() || HaveHandedOver();
        },
        absl::InfiniteFuture());
    // No rank has anything left to do. One that hangs does not hold up the next ranks.
    if (HaveHandedOver()) {
      PollUntil([&] { return Over() || at_once_; }, base::MonotonicNow() + options_.grace_time);
      if (!Over()) Stop();
    }
    // All ranks end because of the signal. But a rank that got it before it met the others ends
    // alone.
    if (EndedBySignal() != 0) {
      PollUntil([&] { return Over() || failed_ || policy_.first() != 0; },
                base::MonotonicNow() + options_.grace_time);
      if (!Over() && policy_.first() == 0) SignalAll(EndedBySignal());
      PollUntil([&] { return Over() || failed_ || policy_.first() != 0; }, absl::InfiniteFuture());
    }
    // A failure spreads to other ranks, which end with messages of their own. It may also come from
    // a signal that one rank got first and that was meant for all of them.
    if (failed_) {
      Settle([&] { return Over() || lost_ || policy_.first() != 0; });
    }
    if (policy_.first() != 0 && !Over()) {
      SignalAll(policy_.first());
      PollUntil([&] { return Over() || failed_ || at_once_; }, absl::InfiniteFuture());
      Settle([&] { return Over() || lost_ || at_once_; });
    }
    if (!Over()) Stop();
    LookAtAll();
    ReadSignals();
  }

  bool ended_at_once() const { return at_once_; }

  StartEnd End() const {
    const bool failed =
        !ended_badly_.empty() && !(agreed_end_ == base::kExitDiverged && IsAgreed());
    StartEnd end = {.failed = failed, .done = IsDone(), .signal = policy_.first()};
    if (end.failed) {
      end.may_pass = IsPassing(Culprit());
      end.failed_at = failed_at_;
      end.why = DescribeCulprit();
    }
    // A user who ends the run at once, or the job in the daemon, wants no further start.
    const bool on_request = FindOnRequest() != nullptr;
    if (!at_once_ && !on_request) end.handover = place_->host()->handover();
    return end;
  }

  // For ranks of which some could not be started; the others were ended. State that was handed over
  // goes back to the old number of ranks, at the old host.
  StartEnd EndOfNoStart(const absl::Status& why) const {
    StartEnd end = {.failed = true, .signal = policy_.first(), .failed_at = base::MonotonicNow()};
    end.why = absl::StrCat("not all ranks could be started: ", std::string(why.message()));
    if (!at_once_) end.handover = place_->host()->handover();
    return end;
  }

  int Judge() {
    if (at_once_) return base::kExitSignalBase + policy_.first();
    if (ended_badly_.empty() || IsAgreed()) {
      if (agreed_end_ == base::kExitDiverged) SayWhyDiverged();
      return agreed_end_;
    }
    const RankState& culprit = Culprit();
    if (start_.restarts.comes_back() && IsDone()) {
      options_.write_stderr(
          absl::StrCat(kProgramName, ": ", DescribeCulprit(), " after the run was done\n"));
      return base::kExitOk;
    }
    std::string words =
        absl::StrCat(kProgramName, ": ", DescribeCulprit(), "; the other ranks were stopped\n");
    // Rank 0's words were passed on already.
    if (culprit.rank() != 0 && !culprit.last_words().empty()) {
      absl::StrAppend(&words, "Its last output:\n", Indented(culprit.last_words()));
    }
    options_.write_stderr(words);
    if (culprit.lost()) return base::kExitUnavailable;
    const int status = *culprit.wait_status();
    return WIFEXITED(status) ? WEXITSTATUS(status) : base::kExitFailed;
  }

 private:
  // A rank that says that a user ended the job; null: none does. It may end after others that only
  // miss a rank, and after they all were told to stop.
  const RankState* FindOnRequest() const {
    const auto found = std::ranges::find_if(ranks_, [](const RankState* rank) {
      return rank->wait_status().has_value() && IsOnRequest(*rank);
    });
    return found == ranks_.end() ? nullptr : *found;
  }

  const RankState& Culprit() const {
    if (const RankState* const asked = FindOnRequest()) return *asked;
    return **std::min_element(ended_badly_.begin(), ended_badly_.end(),
                              [](const auto* a, const auto* b) { return Guilt(*a) < Guilt(*b); });
  }

  // Whether the failed ranks failed only because they missed ranks that had reached the run's end.
  bool IsAgreed() const {
    return agreed_end_ != base::kExitOk && Guilt(Culprit()) >= kMissingGuilt;
  }

  // Rank 0's words are passed on, but rank 0 may have ended since another rank diverged.
  void SayWhyDiverged() const {
    const auto diverged = std::ranges::find_if(ranks_, [](const RankState* rank) {
      const std::optional<int> status = rank->wait_status();
      return status && WIFEXITED(*status) && WEXITSTATUS(*status) == base::kExitDiverged;
    });
    if (diverged == ranks_.end() || (*diverged)->rank() == 0) return;
    options_.write_stderr(absl::StrCat(kProgramName, ": ", (*diverged)->Describe(), ":\n",
                                       Indented((*diverged)->last_words())));
  }

  std::string DescribeCulprit() const {
    return absl::StrCat(Culprit().Describe(), " ", Culprit().DescribeEnd());
  }

  // A rank returns 0 only after all ranks have done their part. A rank that is killed after that
  // leaves no state in memory, and the run is done without it.
  bool IsDone() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const RankState* rank) {
      return rank->said_done() || rank->wait_status() == std::optional<int>(0);
    });
  }

  // Of the complete state at the ranks' host; 0: there is none.
  uint64_t NumberOfHandover() const {
    const std::optional<Handover> left = place_->host()->handover();
    return left.has_value() ? left->number : 0;
  }

  // Whether the ranks have left their state for others, and one has ended, as all are about to.
  bool HaveHandedOver() const {
    const uint64_t number = IsDone() ? NumberOfHandover() : 0;
    return number != 0 && number != inherited_;
  }

  bool Over() const {
    return std::none_of(ranks_.begin(), ranks_.end(),
                        [](const RankState* rank) { return rank->running(); });
  }

  template <typename Done>
  void PollUntil(const Done& done, absl::Time deadline) {
    while (!done()) {
      const absl::Duration left = deadline - base::MonotonicNow();
      if (left <= absl::ZeroDuration()) return;
      PollOnce(left);
    }
  }

  // Waits for ranks that end by themselves. If all ranks that ended were stopped by another rank,
  // that rank is still about to end with the reason, so it gets the grace time.
  template <typename Done>
  void Settle(const Done& done) {
    const auto stopped = [](const RankState* rank) { return Guilt(*rank) == kStoppedGuilt; };
    PollUntil(done, base::MonotonicNow() + options_.settle_time);
    PollUntil(
        [&] { return done() || !std::all_of(ended_badly_.begin(), ended_badly_.end(), stopped); },
        base::MonotonicNow() + options_.grace_time);
  }

  void PollOnce(absl::Duration at_most) {
    constexpr absl::Duration kLongest = absl::Hours(1);
    std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
    absl::Time until = base::MonotonicNow() + std::min(at_most, kLongest);
    if (host_ != nullptr) {
      host_->AddTo(&fds);
      until = std::min(until, host_->look_by());
    }
    place_->AddTo(&fds);
    until = std::min(until, place_->look_by());
    const absl::Duration wait = std::max(absl::ZeroDuration(), until - base::MonotonicNow());
    const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1;
    if (poll(fds.data(), fds.size(), milliseconds) < 0) return;
    if (fds[0].revents != 0) ReadSignals();
    LookAtAll();
  }

  void LookAtAll() {
    std::vector<RankState*> ran;
    for (RankState* rank : ranks_) {
      if (rank->running()) ran.push_back(rank);
    }
    if (host_ != nullptr) host_->Look(base::MonotonicNow());
    place_->Look();
    for (RankState* rank : ranks_) {
      const std::string words = rank->TakeNewWords();
      if (rank->rank() == 0 && !words.empty()) options_.write_stderr(words);
    }
    for (const RankState* rank : ran) {
      if (!rank->running()) NoteEnd(*rank);
    }
  }

  // The signal by which a rank says that it ended; 0: none does.
  int EndedBySignal() const {
    return agreed_end_ > base::kExitSignalBase ? agreed_end_ - base::kExitSignalBase : 0;
  }

  void SignalAll(int signal) { host_->Signal(signal); }

  void NoteEnd(const RankState& rank) {
    if (!rank.lost()) {
      const int status = *rank.wait_status();
      if (status == 0) return;
      if (WIFSIGNALED(status) && WTERMSIG(status) == policy_.first()) {  // all ranks got it
        agreed_end_ = base::kExitSignalBase + policy_.first();
        return;
      }
      if (const std::optional<int> code = AgreedEnd(status)) {
        agreed_end_ = *code;
        return;
      }
    }
    if (!failed_) failed_at_ = base::MonotonicNow();
    failed_ = true;
    lost_ = lost_ || rank.lost();
    if (!stopping_) ended_badly_.push_back(&rank);
  }

  void ReadSignals() {
    signalfd_siginfo info = {};
    while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
      const auto signal = static_cast<int>(info.ssi_signo);
      const StopAction action = policy_.OnSignal(signal, base::MonotonicNow());
      // Ranks of an earlier start were told of a first signal.
      const int before = start_.restarts.signal_before;
      const bool is_second = before != 0 && !IsWarning(before) && !IsWarning(signal);
      if ((action != StopAction::kEndAtOnce && !is_second) || at_once_) continue;
      at_once_ = true;
      options_.write_stderr(
          absl::StrCat(kProgramName, ": ended at once by a second ", SignalName(signal), "\n"));
    }
  }

  void Stop() {
    stopping_ = true;
    if (!at_once_) {
      SignalAll(SIGTERM);
      PollUntil([&] { return Over() || at_once_; },
                base::MonotonicNow() + (lost_ ? options_.lost_grace_time : options_.grace_time));
    }
    SignalAll(SIGKILL);
    PollUntil([&] { return Over(); }, absl::InfiniteFuture());
  }

  const LaunchOptions& options_;
  const int signal_fd_;
  const trainer::Start& start_;
  RunPlace* const place_;
  RankHost* host_ = nullptr;  // of the ranks, once they were started
  uint64_t inherited_ = 0;    // the number of the handover that the ranks began with; 0: none
  absl::Time failed_at_;
  std::vector<RankState*> ranks_;              // of all hosts
  std::vector<const RankState*> ended_badly_;  // before Stop() told them to, in order
  bool failed_ = false;
  bool lost_ = false;  // a host was lost
  bool stopping_ = false;
  StopPolicy policy_;     // the launcher passed its first signal on
  bool at_once_ = false;  // a second signal came
  int agreed_end_ = base::kExitOk;
};

// A pointer that does not destroy the host.
std::shared_ptr<RankHost> Borrowed(RankHost* host) {
  return std::shared_ptr<RankHost>(std::shared_ptr<void>(), host);
}

// Begins to make `here`, where the run began, or another host ready.
absl::StatusOr<std::shared_ptr<RankHost>> ReachHost(const LaunchOptions& options, LocalHost* here,
                                                    const RunPlace& place,
                                                    const MoveRequest& wanted) {
  if (options.host != nullptr || !IsThisHost(wanted.host)) return options.reach(wanted);
  if (place.host() == here) return absl::FailedPreconditionError("the run is at this host already");
  if (options.check_here) GEMINID_RETURN_IF_ERROR(options.check_here(wanted));
  GEMINID_RETURN_IF_ERROR(here->Reserve(wanted.state_bytes));
  return Borrowed(here);
}

}  // namespace

absl::StatusOr<int> Launch(const LaunchOptions& options, LaunchedSoFar* so_far) {
  const sigset_t forwarded = WatchedSignals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &forwarded, &before);
  const absl::Cleanup restore = [&] { sigprocmask(SIG_SETMASK, &before, nullptr); };
  const int signal_fd = signalfd(-1, &forwarded, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd < 0) return absl::ErrnoToStatus(errno, "cannot watch signals");
  const absl::Cleanup close_fd = [&] { close(signal_fd); };
  LocalHost here(options.program, options.environment_here, before);
  here.SetTeller(options.teller_here);
  bool hands_over = options.hands_over;
  if (options.host == nullptr && hands_over) {
    const absl::Status made = here.MakeHandover(options.share);
    if (!made.ok() && (options.min_ranks > 0 || options.share)) return made;
    hands_over = made.ok();
  }
  RunPlace::Options moves = {.say = options.write_stderr};
  std::optional<RunPlace> place;
  if (options.reach && hands_over) {
    moves.reach = [&](const MoveRequest& wanted) {
      return ReachHost(options, &here, *place, wanted);
    };
  }
  place.emplace(options.host != nullptr ? options.host : Borrowed(&here), std::move(moves));
  Course course({.ranks = options.ranks,
                 .restarts = options.restarts,
                 .restarts_made = options.restarts_made,
                 .min_ranks = hands_over ? options.min_ranks : 0,
                 .fits = options.fits,
                 .new_job_id = RandomJobId});
  std::string why;  // why the last start failed; empty: it did not
  for (;;) {
    const Start start = course.start();
    place->GoTo(start.host, why);
    Launcher launcher(options, signal_fd, start, &*place);
    const absl::Status started = launcher.Start();
    if (started.ok()) launcher.Run();
    if (so_far != nullptr) *so_far = {start.restarts.count, start.ranks};
    const StartEnd end = started.ok() ? launcher.End() : launcher.EndOfNoStart(started);
    const bool job_ended = place->job_ended() && !end.done;
    const std::optional<std::string> again = job_ended ? std::nullopt : course.After(end);
    const bool is_left = !again.has_value() || course.start().job_id != start.job_id;
    if (is_left && options.at_end) options.at_end(start.job_id, start.ranks);
    if (job_ended) return absl::CancelledError(kEndedOnTheWay);
    if (!again.has_value()) {
      if (!launcher.ended_at_once()) GEMINID_RETURN_IF_ERROR(started);
      return launcher.Judge();
    }
    why = end.why;
    options.write_stderr(absl::StrCat(kProgramName, ": ", *again, "\n"));
  }
}

bool IsLaunched() {
  const char* const launcher = std::getenv(kLauncherVariable);
  return launcher != nullptr && absl::StrCat(getppid()) == launcher;
}

std::string RankName(int rank) { return absl::StrCat(kProgramName, ": rank ", rank); }

std::string ShortRankName(int rank) {
  std::string name = absl::StrCat("geminid-rank ", rank);
  return name.size() <= kProcessNameMax ? name : absl::StrCat("geminid-rk ", rank);
}

std::vector<std::string> WithoutOptions(const std::vector<std::string>& arguments,
                                        const std::vector<std::string>& names) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = arguments[i].substr(0, arguments[i].find('='));
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      kept.push_back(arguments[i]);
    } else if (name == arguments[i]) {
      ++i;  // skips the option's value
    }
  }
  return kept;
}

}  // namespace geminid::trainer
