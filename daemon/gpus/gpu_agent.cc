#include "daemon/gpus/gpu_agent.h"

#include <sys/epoll.h>

#include <atomic>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"

namespace geminid::gpus {
namespace {

using agent::AgentState;
using agent::ReplyType;
using agent::RequestType;
using Action = agent::Supervision::Action;

core::Time Now() { return core::Time::FromNanoseconds(os::MonotonicNanoseconds()); }

ReplyType AnswerTo(RequestType type) {
  switch (type) {
    case RequestType::kCreate:
      return ReplyType::kCreated;
    case RequestType::kScrub:
      return ReplyType::kScrubbed;
    case RequestType::kRelease:
      return ReplyType::kReleased;
    case RequestType::kHealth:
      return ReplyType::kHealthy;
    case RequestType::kNone:
      break;
  }
  return ReplyType::kNone;
}

bool IsRelease(const agent::Request& request) { return request.type == RequestType::kRelease; }

void Make(const std::vector<std::function<void()>>& calls) {
  for (const std::function<void()>& call : calls) call();
}

}  // namespace

GpuAgent::GpuAgent(Options options, os::EventLoop* loop)
    : options_(std::move(options)), loop_(loop), supervision_(options_.supervision, Now()) {}

// --- what is due ---------------------------------------------------------------------------------

void GpuAgent::Step() {
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    for (;;) {
      const Action action = supervision_.Next(Now());
      if (action == Action::kNone) break;
      if (action == Action::kStart) {
        StartProcess(&calls);
      } else if (action == Action::kKill) {
        os::Log(os::LogLevel::kWarning, "GPU agent is killed",
                {{"device", options_.device}, {"why", supervision_.why()}});
        process_->Kill();
        FailWaiting(AgentUnavailable(), &calls);
      } else {
        Ask({.request = agent::MakeRequest(RequestType::kHealth, next_request_++, 0, 0),
             .done = [](const Answer&) {}});
      }
    }
  }
  Make(calls);
}

std::optional<int64_t> GpuAgent::NextDeadline() const {
  const std::lock_guard lock(mutex_);
  const std::optional<core::Time> next = supervision_.NextTime();
  if (closed_ || !next.has_value()) return std::nullopt;
  return next->nanoseconds();
}

void GpuAgent::Retry() {
  const std::lock_guard lock(mutex_);
  supervision_.Retry(Now());
  xids_.Settle();
}

void GpuAgent::StartProcess(Calls* calls) {
  absl::StatusOr<AgentProcess> process = AgentProcess::Start(options_.program, options_.gpu);
  absl::Status status = process.status();
  if (status.ok()) {
    process_.emplace(*std::move(process));
    const auto watch = [this](const base::UniqueFd& fd, void (GpuAgent::*callback)()) {
      absl::StatusOr<os::EventLoop::WatchId> id =
          loop_->Watch(fd.get(), EPOLLIN, [this, callback](uint32_t) { (this->*callback)(); });
      if (id.ok()) watches_.push_back(*id);
      return id.status();
    };
    status = watch(process_->socket(), &GpuAgent::OnSocket);
    status.Update(watch(process_->pidfd(), &GpuAgent::OnEnd));
  }
  if (status.ok()) return supervision_.Started(Now());
  Unwatch();
  process_.reset();
  supervision_.StartFailed(Now(), std::string(status.message()));
  os::Log(os::LogLevel::kError, "GPU agent cannot be started",
          {{"device", options_.device}, {"error", std::string(status.message())}});
  FailWaiting(AgentUnavailable(), calls);
}

void GpuAgent::Close() {
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    for (const auto& [id, leaving] : leaving_) loop_->Unwatch(id);
    Unwatch();
    process_.reset();
    std::erase_if(queue_, [](const Job& job) { return IsRelease(job.request); });
    if (asked_.has_value() && IsRelease(asked_->request)) asked_.reset();
    FailWaiting(absl::CancelledError("the daemon ends"), &calls);
  }
  leaving_.clear();
  Make(calls);
}

void GpuAgent::Unwatch() {
  for (const os::EventLoop::WatchId id : std::exchange(watches_, {})) loop_->Unwatch(id);
}

// --- asking --------------------------------------------------------------------------------------

void GpuAgent::Ask(Job job) {
  queue_.push_back(std::move(job));
  SendNext();
}

void GpuAgent::SendNext() {
  if (asked_.has_value() || queue_.empty() || !supervision_.serving()) return;
  asked_ = std::move(queue_.front());
  queue_.pop_front();
  supervision_.Asked(Now());
  const absl::Status sent = process_->Send(asked_->request);
  const bool hung_up = absl::IsFailedPrecondition(sent);
  if (!sent.ok()) supervision_.Broke(Now(), hung_up ? "" : std::string(sent.message()));
  loop_->Post([] {});  // there is a new deadline
}

// Fails all requests but releases, which wait for the end of the process.
void GpuAgent::FailWaiting(const absl::Status& why, Calls* calls) {
  const auto fail = [&](Job& job) {
    calls->push_back([done = std::move(job.done), why] { done(why); });
  };
  std::deque<Job> releases;
  for (Job& job : queue_) {
    if (IsRelease(job.request)) {
      releases.push_back(std::move(job));
    } else {
      fail(job);
    }
  }
  queue_ = std::move(releases);
  if (!asked_.has_value()) return;
  if (IsRelease(asked_->request)) {
    queue_.push_front(*std::move(asked_));
  } else {
    fail(*asked_);
  }
  asked_.reset();
}

void GpuAgent::FinishReleases(Calls* calls) {
  for (Job& job : queue_) {
    calls->push_back([done = std::move(job.done)] { done(AgentAnswer{}); });
  }
  queue_.clear();
}

absl::Status GpuAgent::AgentUnavailable() const {
  if (closed_) return absl::CancelledError("the daemon ends");
  std::string state = "is being started again; try again in a moment";
  if (supervision_.state() == AgentState::kGivenUp) {
    state = "failed at several starts; repair the GPU or its driver, then send geminid SIGHUP";
  } else if (supervision_.state() == AgentState::kEnding) {
    state = "is being ended, and will be started again";
  }
  return absl::UnavailableError(
      absl::StrCat(options_.device, " has no new memory now: geminid-agent ended (",
                   supervision_.why().empty() ? "it closed its socket" : supervision_.why(),
                   ") and ", state, ". Memory that it allocated before stays valid"));
}

GpuAgent::Answer GpuAgent::AskAndWait(RequestType type, uint64_t slab, uint64_t bytes) {
  const auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> answer = promise->get_future();
  {
    const std::lock_guard lock(mutex_);
    const AgentState state = supervision_.state();
    const bool begins = state == AgentState::kWaiting && supervision_.starts() == 0;
    if (closed_ || (!begins && state != AgentState::kStarting && state != AgentState::kServing)) {
      return AgentUnavailable();
    }
    Ask({.request = agent::MakeRequest(type, next_request_++, slab, bytes),
         .done = [promise](Answer result) { promise->set_value(std::move(result)); }});
  }
  return answer.get();
}

absl::StatusOr<Slab> GpuAgent::MakeSlab(uint64_t bytes, bool scrub) {
  Answer made = AskAndWait(RequestType::kCreate, 0, bytes);
  if (!made.ok()) return made.status();
  Slab slab = {.fd = std::move(made->said.fd),
               .bytes = bytes,
               .id = made->said.reply.slab,
               .start = made->start};
  if (!scrub) return slab;
  absl::Status scrubbed = AskAndWait(RequestType::kScrub, slab.id, 0).status();
  if (scrubbed.ok()) return slab;
  std::vector<Slab> slabs;
  slabs.push_back(std::move(slab));
  Release(std::move(slabs), base::UniqueFd(), [] {});
  return scrubbed;
}

void GpuAgent::Release(std::vector<Slab> slabs, base::UniqueFd holder, std::function<void()> done) {
  for (Slab& slab : slabs) slab.fd.Reset();
  if (!holder.valid()) return ReleaseNow(slabs, done);
  const auto leaving = std::make_shared<PendingRelease>(PendingRelease{
      .holder = std::move(holder), .slabs = std::move(slabs), .done = std::move(done)});
  loop_->Post([this, leaving] {
    AwaitHolder(std::move(leaving->slabs), std::move(leaving->holder), std::move(leaving->done));
  });
}

void GpuAgent::AwaitHolder(std::vector<Slab> slabs, base::UniqueFd holder,
                           std::function<void()> done) {
  const auto id = std::make_shared<os::EventLoop::WatchId>(0);
  const absl::StatusOr<os::EventLoop::WatchId> watch =
      loop_->Watch(holder.get(), EPOLLIN, [this, id](uint32_t) {
        loop_->Unwatch(*id);
        const auto found = leaving_.extract(*id);
        if (!found.empty()) ReleaseNow(found.mapped().slabs, found.mapped().done);
      });
  if (!watch.ok()) return ReleaseNow(slabs, done);
  *id = *watch;
  leaving_.emplace(
      *watch, PendingRelease{
                  .holder = std::move(holder), .slabs = std::move(slabs), .done = std::move(done)});
}

void GpuAgent::ReleaseNow(const std::vector<Slab>& slabs, const std::function<void()>& done) {
  // One more than the slabs, so that it is not zero before all releases have been asked for.
  const auto left = std::make_shared<std::atomic<size_t>>(slabs.size() + 1);
  const auto count = [left, done](const Answer&) {
    if (left->fetch_sub(1) == 1) done();
  };
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    for (const Slab& slab : slabs) {
      // Slabs of an earlier process ended with it.
      if (!process_.has_value() || slab.start != supervision_.starts()) {
        left->fetch_sub(1);
      } else {
        Ask({.request = agent::MakeRequest(RequestType::kRelease, next_request_++, slab.id, 0),
             .done = count});
      }
    }
  }
  count(AgentAnswer{});
}

// --- hearing -------------------------------------------------------------------------------------

void GpuAgent::OnSocket() {
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    while (process_.has_value()) {
      absl::StatusOr<std::optional<AgentProcess::ReceivedReply>> heard = process_->Receive();
      if (!heard.ok()) {
        const bool hung_up = absl::IsUnavailable(heard.status());
        supervision_.Broke(Now(), hung_up ? "" : std::string(heard.status().message()));
        // Nothing that the agent says counts any more; the pidfd shows its end.
        if (watches_.size() == 2) {
          loop_->Unwatch(watches_.front());
          watches_.erase(watches_.begin());
        }
        break;
      }
      if (!heard->has_value()) break;
      Hear(std::move(**heard), &calls);
    }
  }
  Make(calls);
}

void GpuAgent::Hear(AgentProcess::ReceivedReply heard, Calls* calls) {
  const agent::Reply& reply = heard.reply;
  if (reply.type == ReplyType::kHello) {
    if (absl::Status status = CheckHello(reply.gpu); !status.ok()) {
      return supervision_.Broke(Now(), std::string(status.message()));
    }
    supervision_.SaidHello(Now());
    health_ = agent::Health{};
    health_->total_bytes = reply.gpu.total_bytes;
    health_->free_bytes = reply.gpu.free_bytes;
    os::Log(os::LogLevel::kInfo, "GPU agent is ready",
            {{"device", options_.device},
             {"gpu", options_.gpu},
             {"pid", absl::StrCat(process_->pid())}});
    return SendNext();
  }
  const bool failed = reply.type == ReplyType::kFailed;
  if (failed && reply.id == 0) {
    return supervision_.Broke(Now(), std::string(agent::StatusOf(reply).message()));
  }
  if (!asked_.has_value() || reply.id != asked_->request.id ||
      (!failed && reply.type != AnswerTo(asked_->request.type))) {
    return supervision_.Broke(Now(), "it answered a request that was never sent");
  }
  supervision_.Answered(Now());
  if (reply.type == ReplyType::kHealthy) NoteHealth(reply.health);
  Job job = *std::move(asked_);
  asked_.reset();
  if (failed) {
    const absl::Status status = agent::StatusOf(reply);
    calls->push_back(
        [done = std::move(job.done),
         status = absl::Status(
             status.code(), absl::StrCat(options_.device, ": ", std::string(status.message())))] {
          done(status);
        });
  } else {
    const auto kept = std::make_shared<AgentAnswer>(
        AgentAnswer{.said = std::move(heard), .start = supervision_.starts()});
    calls->push_back([done = std::move(job.done), kept] { done(std::move(*kept)); });
  }
  SendNext();
}

void GpuAgent::NoteHealth(const agent::Health& health) {
  health_ = health;
  for (uint32_t i = 0; i < health.faults.xids; ++i) {
    xids_.Add(health.faults.xid[i]);
    os::Log(os::LogLevel::kWarning, "GPU reports an Xid",
            {{"device", options_.device}, {"xid", absl::StrCat(health.faults.xid[i])}});
  }
  const Verdict verdict = ReadNow().verdict();
  if (verdict.condition == std::exchange(condition_, verdict.condition)) return;
  os::Log(verdict.reasons.empty() ? os::LogLevel::kInfo : os::LogLevel::kWarning,
          "the GPU's health has changed",
          {{"device", options_.device},
           {"health", Name(verdict.condition)},
           {"why", absl::StrJoin(verdict.reasons, "; ")}});
}

absl::Status GpuAgent::CheckHello(const agent::GpuFacts& gpu) const {
  if (gpu.uuid != options_.gpu) {
    return absl::InternalError(
        absl::StrCat("it is the agent of ", gpu.uuid, ", not of ", options_.gpu));
  }
  if (options_.granularity_bytes % gpu.granularity_bytes == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("its slabs are multiples of ", gpu.granularity_bytes,
                                          " bytes, arenas of ", options_.granularity_bytes));
}

void GpuAgent::OnEnd() {
  OnSocket();  // its last words
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    if (!process_.has_value()) return;
    const std::optional<std::string> how = process_->HowItEnded();
    if (!how.has_value()) return;
    supervision_.Ended(Now(), *how);
    os::Log(os::LogLevel::kWarning, "GPU agent ended",
            {{"device", options_.device},
             {"why", supervision_.why() == *how ? *how : supervision_.why() + "; " + *how},
             {"state", agent::Name(supervision_.state())}});
    Unwatch();
    process_.reset();
    health_.reset();
    FailWaiting(AgentUnavailable(), &calls);
    FinishReleases(&calls);
  }
  Make(calls);
}

absl::Status GpuAgent::CheckFit() const {
  const Verdict verdict = Read().verdict();
  if (verdict.condition != Condition::kUnhealthy) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      options_.device,
      " takes no new sessions: its GPU is unhealthy: ", absl::StrJoin(verdict.reasons, "; "),
      ". Ask for another device; dmesg and nvidia-smi -q say more. Reset the GPU with geminid "
      "stopped, or send it SIGHUP if the GPU was looked into"));
}

AgentReading GpuAgent::Read() const {
  const std::lock_guard lock(mutex_);
  return ReadNow();
}

AgentReading GpuAgent::ReadNow() const {
  return {.gpu = options_.gpu,
          .state = supervision_.state(),
          .pid = process_.has_value() ? process_->pid() : 0,
          .restarts = supervision_.starts() > 0 ? supervision_.starts() - 1 : 0,
          .why = supervision_.why(),
          .health = health_,
          .xids = xids_};
}

}  // namespace geminid::gpus
