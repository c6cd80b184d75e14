#include "daemon/service/calls/scale_requests.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "daemon/os/process_place.h"
#include "daemon/planner/sharing/node_job.h"

namespace geminid::service {
namespace {

constexpr char kAsked[] = "asked";
constexpr char kTaken[] = "taken";
constexpr char kDone[] = "done";
constexpr char kRefused[] = "refused";
constexpr char kEnded[] = "ended";  // by the launcher, which heard that a person wants it
constexpr char kJobEnded[] = "the job was ended on request";

bool IsEnd(const std::string& state) { return state == kDone || state == kRefused; }

bool HasEnded(const v1::ScaleRequest& request) { return IsEnd(request.state()); }

bool IsState(const std::string& state) { return state == kTaken || IsEnd(state); }

// The wish of a request, in words: "for 4 ranks", "to go on at node-b with 2 ranks".
std::string Wish(const v1::ScaleRequest& request) {
  if (request.host().empty()) return absl::StrCat("for ", base::Counted(request.ranks(), "rank"));
  return absl::StrCat("to go on at ", request.host(), " with ",
                      base::Counted(request.ranks(), "rank"));
}

std::string Change(const v1::ScaleRequest& request) {
  if (!request.host().empty()) return absl::StrCat("goes to ", request.host());
  return absl::StrCat("changes from ", request.ranks_before(), " to ",
                      base::Counted(request.ranks(), "rank"));
}

bool HasRank(const ScaleRequests::Sessions& attached, const ScaleRequests::Job& job) {
  return std::ranges::any_of(attached, [&](const auto& session) { return session.second == job; });
}

}  // namespace

// The job's ranks may be between two groups, when no session is attached. New ranks may wait for
// memory for long before they report.
bool ScaleRequests::Waits(const Request& request, core::Time now) const {
  return !HasEnded(request.message) && now - request.heard < kSilence;
}

ScaleRequests::ScaleRequests(JobCounts* counts) : counts_(counts), last_(std::random_device()()) {}

// Null: nobody counts.
RequestCounts* ScaleRequests::CountsOf(const std::string& host) const {
  if (counts_ == nullptr) return nullptr;
  return host.empty() ? &counts_->scales : &counts_->moves;
}

// A job that a person ends has not gone back.
void ScaleRequests::Set(const std::string& state, const std::string& message, Request* request) {
  const bool had_begun = request->message.state() == kTaken && !request->job_ended;
  request->message.set_state(state);
  request->message.set_message(message);
  RequestCounts* const counts = CountsOf(request->message.host());
  if (counts == nullptr || request->asker != Asker::kPerson || !IsEnd(state)) return;
  ++(state == kDone ? counts->done : had_begun ? counts->gone_back : counts->refused);
}

void ScaleRequests::Refuse(const std::string& why, Request* request) {
  Set(kRefused, why, request);
}

ScaleRequests::Launcher ScaleRequests::LauncherOf(uint64_t session) const {
  const auto found = launchers_.find(session);
  return found == launchers_.end() ? nullptr : found->second;
}

bool ScaleRequests::HasLauncher(uint64_t session) {
  const std::lock_guard lock(mutex_);
  return launchers_.contains(session);
}

void ScaleRequests::SetLauncher(uint64_t session, base::UniqueFd launcher) {
  const std::lock_guard lock(mutex_);
  launchers_[session] =
      launcher.valid() ? std::make_shared<const base::UniqueFd>(std::move(launcher)) : nullptr;
}

// A job that takes no requests is about to end, or nobody starts its ranks again.
void ScaleRequests::NoteGone(uint64_t session, const OfferedRun& offer) {
  const Launcher launcher = LauncherOf(session);
  if (launcher != nullptr && offer.why_not.empty()) gone_[{offer.tenant, offer.job}] = launcher;
}

absl::Status ScaleRequests::CheckStartsAgain(const Job& job, const Sessions& attached) const {
  if (!gone_.contains({job.tenant, job.name})) return absl::OkStatus();
  if (!HasRank(attached, job)) {
    return absl::AbortedError(
        absl::StrCat("job ", job.name, " of ", job.tenant,
                     " has no ranks now: they have ended or died, and the geminid-train that "
                     "started them still runs; ask again in a moment"));
  }
  return absl::AbortedError(absl::StrCat("the ranks of job ", job.name, " of ", job.tenant,
                                         " have started again, and do not train yet; ask again in "
                                         "a moment"));
}

void ScaleRequests::Forget(const Sessions& attached, core::Time now) {
  const auto is_gone = [&](const auto& of_session) { return !attached.contains(of_session.first); };
  for (const auto& offer : offers_) {
    if (is_gone(offer)) NoteGone(offer.first, offer.second);
  }
  std::erase_if(gone_, [](const auto& of_job) { return os::HasEnded(*of_job.second); });
  std::erase_if(offers_, is_gone);
  std::erase_if(launchers_, is_gone);
  std::map<std::string, std::vector<uint64_t>> ended;  // by tenant
  for (auto& [number, request] : requests_) {
    // Ranks of a job that moves may be attached here again. Its launcher reports on the request.
    const bool is_told = request.message.state() == kTaken && !request.message.host().empty();
    if (is_told ? attached.contains(request.session)
                : HasRank(attached, {request.message.tenant(), request.message.job()})) {
      request.heard = now;
    } else if (!HasEnded(request.message) && request.launcher != nullptr &&
               os::HasEnded(*request.launcher)) {
      Refuse("the job has ended: the geminid-train that started its ranks is gone", &request);
    }
    if (Waits(request, now)) continue;
    ended[request.message.tenant()].push_back(number);
    if (HasEnded(request.message)) continue;
    Refuse("the job ended, or has had no ranks for a minute", &request);
  }
  for (const auto& [tenant, numbers] : ended) {
    for (size_t i = 0; i + kMostEnded < numbers.size(); ++i) requests_.erase(numbers[i]);
  }
}

ScaleRequests::Request* ScaleRequests::Pending(const std::string& tenant, const std::string& job) {
  for (auto& [number, request] : requests_) {
    if (request.message.tenant() != tenant || request.message.job() != job) continue;
    if (!HasEnded(request.message)) return &request;
  }
  return nullptr;
}

absl::StatusOr<v1::ScaleRequest> ScaleRequests::Ask(const std::string& tenant,
                                                    const v1::ScaleJobRequest& wanted,
                                                    const Sessions& attached, core::Time now,
                                                    Asker asker) {
  const std::lock_guard lock(mutex_);
  Forget(attached, now);
  const auto offer = Choose(tenant, wanted, attached);
  if (offer.ok()) return Begin(wanted, **offer, now, asker);
  if (absl::IsAborted(offer.status())) return offer.status();  // the person asks again
  RequestCounts* const counts = CountsOf(wanted.host());
  if (counts != nullptr && asker == Asker::kPerson) ++counts->refused;
  return offer.status();
}

absl::StatusOr<const std::pair<const uint64_t, ScaleRequests::OfferedRun>*> ScaleRequests::Choose(
    const std::string& tenant, const v1::ScaleJobRequest& wanted, const Sessions& attached) {
  const bool moves = !wanted.host().empty();
  if (wanted.ranks() < 1 && !moves) {
    return absl::InvalidArgumentError("a job has at least 1 rank, not 0");
  }
  if (wanted.host().size() > kLongestHost) {
    return absl::InvalidArgumentError(absl::StrCat("the name of a host has at most ", kLongestHost,
                                                   " bytes, not ", wanted.host().size()));
  }
  if (wanted.ranks() > planner::kMostRanksOfJob) {
    return absl::InvalidArgumentError(absl::StrCat("a job has at most ", planner::kMostRanksOfJob,
                                                   " ranks, not ", wanted.ranks()));
  }
  if (const Request* const other = Pending(tenant, wanted.job())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", wanted.job(), " was already asked ", Wish(other->message), " (request ",
        other->message.number(), "); wait until that request ends, then ask again"));
  }
  const absl::Status again = CheckStartsAgain({tenant, wanted.job()}, attached);
  if (!HasRank(attached, {tenant, wanted.job()})) {
    if (!again.ok()) return again;
    return absl::NotFoundError(absl::StrCat("there is no job ", wanted.job(), " of ", tenant));
  }
  const std::pair<const uint64_t, OfferedRun>* found = nullptr;
  for (const auto& offer : offers_) {
    if (offer.second.tenant != tenant || offer.second.job != wanted.job()) continue;
    if (found != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("two runs are called ", wanted.job(),
                       ", so neither is scaled or moved; give each a --job name of its own"));
    }
    found = &offer;
  }
  if (found == nullptr) {
    if (!again.ok()) return again;
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", wanted.job(), " of ", tenant,
        moves ? " does not go to another host: " : " does not take another number of ranks: ",
        "only ranks in training that geminid-train has started do; ask again if the run has just "
        "begun, else save a checkpoint and resume it ",
        moves ? "there" : absl::StrCat("with ", base::Counted(wanted.ranks(), "rank")),
        " instead"));
  }
  const OfferedRun& offered = found->second;
  if (!offered.why_not.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", wanted.job(), " cannot be ", moves ? "moved: " : "scaled: ", offered.why_not));
  }
  if (moves && !offered.can_move) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", wanted.job(), " cannot be moved: its ranks are of an older version, ",
                     "which cannot move; save a checkpoint and resume it there"));
  }
  if (offered.ranks == wanted.ranks() && !moves) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", wanted.job(), " has ", base::Counted(wanted.ranks(), "rank"), " already"));
  }
  return found;
}

v1::ScaleRequest ScaleRequests::Begin(const v1::ScaleJobRequest& wanted,
                                      const std::pair<const uint64_t, OfferedRun>& offer,
                                      core::Time now, Asker asker) {
  const OfferedRun& offered = offer.second;
  Request request;
  request.run = offered.run;
  request.session = offer.first;
  request.launcher = LauncherOf(offer.first);
  request.heard = now;
  request.asker = asker;
  request.message.set_number(++last_);
  request.message.set_tenant(offered.tenant);
  request.message.set_job(wanted.job());
  request.message.set_ranks_before(offered.ranks);
  request.message.set_ranks(wanted.ranks() == 0 ? offered.ranks : wanted.ranks());
  request.message.set_host(wanted.host());
  request.message.set_state(kAsked);
  return requests_.emplace(last_, request).first->second.message;
}

absl::StatusOr<v1::ScaleRequest> ScaleRequests::Get(uint64_t number, const Sessions& attached,
                                                    core::Time now) {
  const std::lock_guard lock(mutex_);
  Forget(attached, now);
  const auto found = requests_.find(number);
  if (found == requests_.end()) {
    return absl::NotFoundError(absl::StrCat(
        "the daemon does not know request ", number, ": it has restarted since, or has served ",
        kMostEnded,
        " later requests of the tenant; 'geminictl ls jobs' shows how many ranks the job has"));
  }
  return found->second.message;
}

v1::OfferScaleResponse ScaleRequests::Offer(const std::string& tenant,
                                            const v1::OfferScaleRequest& offer,
                                            const Sessions& attached, core::Time now) {
  const std::lock_guard lock(mutex_);
  Forget(attached, now);
  const bool had_shrunk = offers_[offer.session()].has_shrunk;
  if (counts_ != nullptr && offer.has_shrunk() && !had_shrunk) ++counts_->shrunk;
  offers_[offer.session()] = {
      .tenant = tenant,
      .job = offer.job(),
      .run = offer.run(),
      .ranks = offer.ranks(),
      .why_not = offer.why_not(),
      .can_move = offer.can_move(),
      .has_shrunk = had_shrunk || offer.has_shrunk(),
      .share = offer.has_share() ? std::optional(offer.share()) : std::nullopt};
  gone_.erase({tenant, offer.job()});
  const auto told = requests_.find(offer.number());
  if (told != requests_.end() && IsState(offer.state()) && !HasEnded(told->second.message) &&
      told->second.message.tenant() == tenant && told->second.message.job() == offer.job()) {
    Set(offer.state(), offer.message(), &told->second);
  }
  v1::OfferScaleResponse response;
  Request* const pending = Pending(tenant, offer.job());
  if (pending == nullptr) return response;
  const bool is_anothers = pending->session != offer.session();
  if (is_anothers && attached.contains(pending->session)) return response;  // of another run
  if (pending->message.state() == kTaken && is_anothers && !pending->message.host().empty()) {
    return response;  // the launcher reports the result
  }
  if (pending->message.state() == kTaken && is_anothers) {
    // The ranks that took the request are gone, and the ranks in their place do not know it.
    Refuse("the ranks that had taken it failed; the job goes on as it was", pending);
    return response;
  }
  if (is_anothers && pending->run != offer.run()) {
    Refuse("the ranks that were asked are gone; ask again", pending);
    return response;
  }
  pending->session = offer.session();
  pending->launcher = LauncherOf(offer.session());
  pending->heard = now;
  if (pending->message.state() != kAsked) return response;
  response.set_number(pending->message.number());
  response.set_ranks(pending->message.ranks());
  response.set_host(pending->message.host());
  return response;
}

absl::Status ScaleRequests::Tell(const std::string& tenant, const v1::OfferScaleRequest& told,
                                 const Sessions& attached, core::Time now) {
  const std::lock_guard lock(mutex_);
  Forget(attached, now);
  const auto found = requests_.find(told.number());
  const bool is_of_job = found != requests_.end() && found->second.message.tenant() == tenant &&
                         found->second.message.job() == told.job();
  // The run may arrive before its launcher has read the answer. So only the launcher's word counts.
  if (is_of_job && found->second.end_wanted && told.state() == kEnded) {
    found->second.end_wanted = false;
    found->second.job_ended = found->second.end_heard = true;
    Refuse(kJobEnded, &found->second);
    found->second.heard = now;
    return absl::OkStatus();
  }
  if (is_of_job && found->second.end_wanted && told.state() == kTaken) {
    found->second.heard = now;
    return absl::AbortedError(kJobEnded);
  }
  if (is_of_job && found->second.job_ended) return absl::AbortedError(kJobEnded);
  // Attached ranks report themselves.
  if (!is_of_job || !IsState(told.state()) || HasEnded(found->second.message) ||
      (found->second.message.state() != kTaken && attached.contains(found->second.session))) {
    return absl::NotFoundError(absl::StrCat("no caller waits for request ", told.number(),
                                            " of job ", told.job(), " of ", tenant));
  }
  found->second.heard = now;
  Set(told.state(), told.message(), &found->second);
  return absl::OkStatus();
}

std::vector<ScaleRequests::Shared> ScaleRequests::SharedJobs(const Sessions& attached,
                                                             core::Time now) {
  const std::lock_guard lock(mutex_);
  Forget(attached, now);
  std::map<std::pair<std::string, std::string>, int> runs;
  for (const auto& [session, offer] : offers_) ++runs[{offer.tenant, offer.job}];
  std::vector<Shared> jobs;
  for (const auto& [session, offer] : offers_) {
    if (!offer.share || runs[{offer.tenant, offer.job}] > 1) continue;
    Shared& shared = jobs.emplace_back();
    shared = {{offer.tenant, offer.job}, offer.ranks, *offer.share, offer.why_not};
    if (shared.why_not.empty()) shared.why_not = offer.share->why_not();
    if (const Request* const pending = Pending(offer.tenant, offer.job)) {
      shared.why_not = absl::StrCat("it was asked ", Wish(pending->message));
    }
  }
  return jobs;
}

void ScaleRequests::Withdraw(uint64_t number, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(number);
  if (found == requests_.end() || found->second.message.state() != kAsked) return;
  Refuse(why, &found->second);
}

absl::StatusOr<std::string> ScaleRequests::EndWithoutRanks(const Job& job, const Sessions& attached,
                                                           core::Time now) {
  const std::lock_guard lock(mutex_);
  Forget(attached, now);
  for (auto& [number, request] : requests_) {
    const bool is_of_job = Job{request.message.tenant(), request.message.job()} == job;
    const bool is_new = now - request.heard < kSilence;
    if (is_of_job && std::exchange(request.end_heard, false) && is_new) {
      return request.message.host();
    }
  }
  Request* const pending = Pending(job.tenant, job.name);
  if (pending == nullptr || pending->message.state() != kTaken || HasRank(attached, job)) return "";
  pending->end_wanted = !pending->message.host().empty();
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", job.name, " has no ranks now: it ", Change(pending->message), " (request ",
      pending->message.number(), "); ask again when the new ranks have attached"));
}

absl::Status ScaleRequests::CheckHasNotLeft(const Job& job, const Sessions& attached) {
  const std::lock_guard lock(mutex_);
  const Request* last = nullptr;
  for (const auto& [number, request] : requests_) {
    if (Job{request.message.tenant(), request.message.job()} == job) last = &request;
  }
  const bool has_left = last != nullptr && last->message.state() == kDone &&
                        !last->message.host().empty() && !HasRank(attached, job);
  if (!has_left) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("there is no job ", job.name, " of ", job.tenant,
                                          " here any more: it goes on at ", last->message.host(),
                                          "; ask the daemon there"));
}

bool ScaleRequests::IsAsked(const Job& job, const Sessions& attached, core::Time now) {
  const std::lock_guard lock(mutex_);
  Forget(attached, now);
  return Pending(job.tenant, job.name) != nullptr;
}

void ScaleRequests::RefuseOf(const Job& job) {
  const std::lock_guard lock(mutex_);
  Request* const pending = Pending(job.tenant, job.name);
  if (pending == nullptr) return;
  pending->job_ended = true;
  Refuse(kJobEnded, pending);
}

bool ScaleRequests::IsOfEndedJob(uint64_t number, const Job& job) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(number);
  return found != requests_.end() && found->second.job_ended &&
         Job{found->second.message.tenant(), found->second.message.job()} == job;
}

}  // namespace geminid::service
