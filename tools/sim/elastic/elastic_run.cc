#include "tools/sim/elastic/elastic_run.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "geminid/v1/job.pb.h"

namespace geminid::sim {
namespace {

using trainer::HandoverMemory;
using trainer::Start;
using trainer::StartEnd;

constexpr char kTenant[] = "uid:7";
constexpr char kJob[] = "train";
constexpr int kBatch = 27000;  // 1,000 divides it, and 48 smaller numbers do
constexpr uint64_t kGoal = 60;
constexpr uint64_t kQuietFrom = 40;  // from here on nobody dies
constexpr uint64_t kStateBytes = 64;
constexpr uint64_t kMostStarts = 10'000;
constexpr core::Duration kLongestRequest = core::Duration::Seconds(120);

bool Fits(int ranks) { return kBatch % ranks == 0; }

}  // namespace

ElasticRun::ElasticRun(uint64_t seed, const ElasticSettings& settings, ElasticFault fault)
    : settings_(settings),
      fault_(fault),
      random_(seed),
      daemon_(std::make_unique<service::ScaleRequests>()),
      memory_(*HandoverMemory::Create()) {
  const double drawn = std::uniform_real_distribution<double>(0, 0.06)(random_);
  risk_ = settings_.death_chance.value_or(drawn);
  const int ranks = RandomRanks();
  course_ = std::make_unique<trainer::Course>(trainer::CourseOptions{
      .ranks = ranks,
      .restarts = std::uniform_int_distribution<int>(0, 4)(random_),
      .min_ranks = Chance(0.5) ? std::uniform_int_distribution<int>(1, ranks)(random_) : 0,
      .fits = Fits,
      .new_job_id = [number = 0]() mutable { return absl::StrCat("job-", ++number); }});
}

// Of those that divide the batch, most of the time.
int ElasticRun::RandomRanks() {
  std::uniform_int_distribution<int> any(1, settings_.most_ranks);
  int ranks = any(random_);
  while (!Fits(ranks) && !Chance(0.002)) ranks = any(random_);
  return Fits(ranks) || course_ != nullptr ? ranks : 1;
}

void ElasticRun::Check(bool good, const std::string& what) {
  if (!good && wrong_.empty()) wrong_ = what;
}

std::string ElasticRun::Live(ElasticTally* tally) {
  tally_ = tally;
  for (uint64_t starts = 0; wrong_.empty(); ++starts) {
    Check(starts < kMostStarts, "the run starts again and again");
    const Start start = course_->start();
    Check(Fits(start.ranks), absl::StrCat(start.ranks, " ranks do not divide the batch"));
    Check(start.restarts.count <= start.restarts.most, "more restarts than it may have");
    if (!memory_->complete().has_value()) memory_->Release();
    ++tally_->starts;
    tally_->most_ranks = std::max(tally_->most_ranks, start.ranks);
    StartEnd end = {.failed = true, .why = "the system refuses a process"};
    if (!Chance(risk_)) end = Run(start);
    end.handover = memory_->complete();
    if (!course_->After(end).has_value()) {
      CheckEnd(end, start);
      break;
    }
    const Start& next = course_->start();
    if (next.restarts.shrink_to > 0) ++tally_->shrunk;
    if (end.handover && next.ranks != start.ranks && next.ranks == end.handover->ranks_before) {
      ++tally_->fell_back;
    }
  }
  return wrong_;
}

// Only what nobody can go on after ends a run before its last step.
void ElasticRun::CheckEnd(const StartEnd& end, const Start& start) {
  if (end.done) ++tally_->finished;
  if (end.done || end.signal != 0 || start.restarts.signal_before != 0 || !end.may_pass) return;
  Check(start.restarts.count >= start.restarts.most, "the run ends with restarts left");
}

// Where a group begins: with what all of its ranks have left, else with what was handed over.
uint64_t ElasticRun::FirstStep(const Start& start) {
  const auto left = kept_.find(start.job_id);
  if (left != kept_.end() && left->second.size() == static_cast<size_t>(start.ranks)) {
    return std::ranges::max(left->second);  // the others finish the step that one has committed
  }
  const std::optional<trainer::Handover> handover = memory_->complete();
  if (!handover.has_value()) return 0;
  Check(start.ranks == handover->ranks_after || start.ranks == handover->ranks_before,
        "the state goes to a number of ranks that nobody asked for");
  return handover->step;
}

StartEnd ElasticRun::Run(const Start& start) {
  static uint64_t sessions = 0;
  Group group = {.start = start, .session = ++sessions, .step = FirstStep(start)};
  Check(group.step >= promised_, absl::StrCat("step ", promised_, " is lost: ", start.ranks,
                                              " ranks begin after step ", group.step));
  now_ = now_ + core::Duration::Milliseconds(500);
  if (fault_ == ElasticFault::kImageGoesAtOnce) memory_->Release();
  attached_[group.session] = {kTenant, kJob};
  std::optional<StartEnd> end;
  if (start.restarts.shrink_to > 0) {
    end = HandOver(&group, start.restarts.shrink_to);
    if (!end) end = Die(group, /*while_committing=*/false);  // it trains no further
  } else if (start.restarts.signal_before != 0) {
    end = StartEnd{};  // saves, and ends
  }
  while (!end && wrong_.empty()) end = Step(&group);
  attached_.erase(group.session);
  return end.value_or(StartEnd{});
}

// What happens between two steps, and a step. Nothing: the group goes on.
std::optional<StartEnd> ElasticRun::Step(Group* group) {
  if (Chance(0.002)) return StartEnd{.signal = 15};
  if (Chance(0.01)) daemon_ = std::make_unique<service::ScaleRequests>();
  if (const int ranks = Poll(group); ranks > 0) {
    if (std::optional<StartEnd> end = HandOver(group, ranks)) return end;
  }
  Operate(*group);
  now_ = now_ + core::Duration::Milliseconds(std::uniform_int_distribution<int>(20, 9000)(random_));
  const double risk = group->step < kQuietFrom ? risk_ : 0;
  if (Chance(risk)) return Die(*group, /*while_committing=*/Chance(0.5));
  ++group->step;
  ++group->trained;
  kept_[group->start.job_id].assign(static_cast<size_t>(group->start.ranks), group->step);
  TellOutcome(group);
  if (Chance(risk)) return Die(*group, /*while_committing=*/false);
  if (group->trained == 2 && memory_->complete().has_value()) memory_->Release();
  // While what was handed over is there, the ranks before may go on from that. A group that is not
  // to come back promises nothing.
  const bool promises = group->start.restarts.keeps() && !memory_->complete().has_value();
  if (promises) promised_ = std::max(promised_, group->step);
  if (group->step < kGoal) return std::nullopt;
  return StartEnd{.done = true};
}

// All of a group's ranks end, since one has died. The daemon keeps what they have where the run is
// to come back.
StartEnd ElasticRun::Die(const Group& group, bool while_committing) {
  ++tally_->deaths;
  const std::string& job = group.start.job_id;
  if (!group.start.restarts.keeps()) {
    kept_.erase(job);
  } else if (while_committing && group.trained > 0) {
    for (uint64_t& step : kept_[job]) step += Chance(0.5) ? 1 : 0;
  }
  return {.failed = true, .may_pass = Chance(0.98), .why = "a rank was killed"};
}

// The ranks leave their state for so many, and end; nothing: they stay.
std::optional<StartEnd> ElasticRun::HandOver(Group* group, int ranks) {
  const auto refuse = [&] {
    if (fault_ != ElasticFault::kRefusalIsForgotten) Tell(group, "refused");
    return std::nullopt;
  };
  if (memory_->complete().has_value()) return refuse();  // it is still needed
  const absl::Status begun = memory_->Begin({.request = group->asked,
                                             .ranks_before = group->start.ranks,
                                             .ranks_after = ranks,
                                             .step = group->step,
                                             .bytes = kStateBytes},
                                            std::numeric_limits<uint64_t>::max());
  Check(begun.ok(), begun.ToString());
  if (group->asked != 0) Tell(group, "taken");
  if (Chance(2 * risk_)) return Die(*group, /*while_committing=*/false);
  if (Chance(0.05)) {  // a rank cannot
    memory_->Release();
    memory_->NoteTold();
    return refuse();
  }
  if (fault_ == ElasticFault::kOldRanksGoOn) kept_[group->start.job_id].clear();
  if (fault_ == ElasticFault::kOldRanksGoOn) return Die(*group, /*while_committing=*/false);
  memory_->Complete();
  if (Chance(2 * risk_)) return Die(*group, /*while_committing=*/false);
  kept_.erase(group->start.job_id);
  return StartEnd{};
}

// --- the first rank and the daemon ---

v1::OfferScaleResponse ElasticRun::Offer(const Group& group, uint64_t number,
                                         const std::string& state) {
  v1::OfferScaleRequest offer;
  offer.set_session(group.session);
  offer.set_job(kJob);
  offer.set_ranks(static_cast<uint32_t>(group.start.ranks));
  offer.set_number(number);
  offer.set_state(state);
  return daemon_->Offer(kTenant, offer, attached_, now_);
}

void ElasticRun::Tell(Group* group, const std::string& state) {
  if (group->asked == 0) return;
  Offer(*group, group->asked, state);
  if (state != "taken") group->asked = 0;
}

int ElasticRun::Poll(Group* group) {
  if (group->asked != 0 || memory_->untold_request() != 0) return 0;
  const v1::OfferScaleResponse answer = Offer(*group, 0, "");
  if (answer.number() == 0) return 0;
  group->asked = answer.number();
  const int ranks = static_cast<int>(answer.ranks());
  if (Fits(ranks)) return ranks;
  Tell(group, "refused");
  return 0;
}

// What the group before could not say.
void ElasticRun::TellOutcome(Group* group) {
  if (memory_->untold_request() == 0 || group->asked != 0) return;
  const std::optional<trainer::Handover> left = memory_->complete();
  group->asked = memory_->untold_request();
  Tell(group, left.has_value() && left->ranks_after == group->start.ranks ? "done" : "refused");
  memory_->NoteTold();
}

// Somebody asks for other ranks, and looks at what becomes of that.
void ElasticRun::Operate(const Group& group) {
  if (!open_.has_value()) {
    if (!Chance(settings_.change_chance)) return;
    v1::ScaleJobRequest wanted;
    wanted.set_job(kJob);
    wanted.set_ranks(static_cast<uint32_t>(RandomRanks()));
    const absl::StatusOr<v1::ScaleRequest> asked = daemon_->Ask(kTenant, wanted, attached_, now_);
    if (asked.ok()) open_ = {asked->number(), static_cast<int>(asked->ranks()), now_, Unasked()};
    return;
  }
  const absl::StatusOr<v1::ScaleRequest> is = daemon_->Get(open_->number, attached_, now_);
  if (!is.ok()) return open_.reset();  // the daemon has restarted
  if (is->state() == "done") {
    Check(group.start.ranks == open_->target || Unasked() > open_->unasked,
          absl::StrCat(open_->target, " ranks are said to train, and ", group.start.ranks, " do"));
    const int before = static_cast<int>(is->ranks_before());
    tally_->joined += static_cast<uint64_t>(std::max(0, open_->target - before));
    tally_->left += static_cast<uint64_t>(std::max(0, before - open_->target));
    ++tally_->done;
    open_.reset();
  } else if (is->state() == "refused") {
    ++tally_->refused;
    open_.reset();
  } else {
    Check(now_ - open_->since < kLongestRequest, "nobody says what became of a request");
  }
}

}  // namespace geminid::sim
