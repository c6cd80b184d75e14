// One GPU as the daemon sees it: an agent's process, which is started, watched and started again,
// and the requests to it.
//
// While an agent hangs or is dead, its GPU gives no new memory. Slabs that were handed out live on
// in their descriptors and mappings.
#ifndef GEMINID_DAEMON_GPUS_GPU_AGENT_H_
#define GEMINID_DAEMON_GPUS_GPU_AGENT_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/agent/messages.h"
#include "daemon/agent/supervision.h"
#include "daemon/gpus/agent_process.h"
#include "daemon/gpus/gpu_health.h"
#include "daemon/os/event_loop.h"

namespace geminid::gpus {

// Device memory. It lasts as long as anybody has its descriptor or a mapping of it, or its agent
// holds it.
struct Slab {
  base::UniqueFd fd;
  uint64_t bytes = 0;
  uint64_t id = 0;     // its agent's name for it
  uint32_t start = 0;  // which start of the agent made it
};

// An agent's state, for people.
struct AgentReading {
  std::string gpu;  // UUID
  agent::AgentState state = agent::AgentState::kWaiting;
  pid_t pid = 0;  // 0: there is no process
  uint32_t restarts = 0;
  std::string why;                      // why it ended last; empty: it never ended
  std::optional<agent::Health> health;  // its last report
  XidCounts xids;                       // of the GPU, from all processes of the agent

  Verdict verdict() const { return Judge(health.value_or(agent::Health{}).faults, xids); }
};

class GpuAgent {
 public:
  struct Options {
    std::string program;             // geminid-agent
    std::string gpu;                 // UUID
    std::string device;              // in messages: "device 1 (cuda, 8.0 GiB)"
    uint64_t granularity_bytes = 0;  // of the device's arenas: a multiple of the driver's
    agent::SupervisionOptions supervision{};
  };
  // `loop` outlives it.
  GpuAgent(Options options, os::EventLoop* loop);
  ~GpuAgent() { Close(); }

  // --- the loop's thread -------------------------------------------------------------------------
  // Does everything that is due; call it after each turn of the loop.
  void Step();
  std::optional<int64_t> NextDeadline() const;  // monotonic nanoseconds
  // Starts an agent that was given up. The operator has looked into the GPU's Xids so far.
  void Retry();
  // Ends the process for good, and all waiting calls with CANCELLED. `done` of a pending Release is
  // not called. May be called when the loop does not turn any more.
  void Close();

  // --- any thread --------------------------------------------------------------------------------
  // Waits for the agent: a tenth of a second, or as long as `supervision` lets an agent hang.
  // UNAVAILABLE: there is no agent now. RESOURCE_EXHAUSTED: the GPU has no memory left. Both name
  // the device. `scrub`: zeros are written into all of the slab.
  absl::StatusOr<Slab> MakeSlab(uint64_t bytes, bool scrub);

  // FAILED_PRECONDITION, naming the device and why: the GPU is not fit for new sessions.
  absl::Status CheckFit() const;

  // Closes the descriptors, waits for the end of the process behind `holder`, if that is valid, and
  // then makes the agent release the slabs. `done` is called when it has, or has ended.
  void Release(std::vector<Slab> slabs, base::UniqueFd holder, std::function<void()> done);

  AgentReading Read() const;

 private:
  struct AgentAnswer {
    AgentProcess::ReceivedReply said;
    uint32_t start = 0;  // which start of the agent said it
  };
  using Answer = absl::StatusOr<AgentAnswer>;
  struct Job {
    agent::Request request;
    std::function<void(Answer)> done;
  };
  using Calls = std::vector<std::function<void()>>;  // to be made without the mutex

  // All under the mutex.
  void Ask(Job job);
  void SendNext();
  void StartProcess(Calls* calls);
  void FailWaiting(const absl::Status& why, Calls* calls);
  void FinishReleases(Calls* calls);
  void Hear(AgentProcess::ReceivedReply heard, Calls* calls);
  void NoteHealth(const agent::Health& health);
  AgentReading ReadNow() const;
  absl::Status CheckHello(const agent::GpuFacts& gpu) const;
  absl::Status AgentUnavailable() const;
  void Unwatch();

  // On the loop's thread, without the mutex.
  void OnSocket();
  void OnEnd();
  void AwaitHolder(std::vector<Slab> slabs, base::UniqueFd holder, std::function<void()> done);

  void ReleaseNow(const std::vector<Slab>& slabs, const std::function<void()>& done);
  Answer AskAndWait(agent::RequestType type, uint64_t slab, uint64_t bytes);

  const Options options_;
  os::EventLoop* const loop_;
  std::vector<os::EventLoop::WatchId> watches_;  // of the process; the loop's thread alone
  struct PendingRelease {
    base::UniqueFd holder;
    std::vector<Slab> slabs;
    std::function<void()> done;
  };
  std::map<os::EventLoop::WatchId, PendingRelease> leaving_;  // the loop's thread alone

  mutable std::mutex mutex_;
  agent::Supervision supervision_;  // guarded by mutex_, as all below
  std::optional<AgentProcess> process_;
  std::deque<Job> queue_;  // one is asked at a time
  std::optional<Job> asked_;
  uint64_t next_request_ = 1;
  std::optional<agent::Health> health_;
  XidCounts xids_;
  Condition condition_ = Condition::kUnknown;  // as last logged
  bool closed_ = false;
};

}  // namespace geminid::gpus

#endif  // GEMINID_DAEMON_GPUS_GPU_AGENT_H_
