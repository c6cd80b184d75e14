// When an agent's process is started, ended and started again. Pure: it is handed time and events,
// and returns what to do.
#ifndef GEMINID_DAEMON_AGENT_SUPERVISION_H_
#define GEMINID_DAEMON_AGENT_SUPERVISION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/core/basics/time.h"

namespace geminid::agent {

struct SupervisionOptions {
  // From the start of the process to its Hello. Without the persistence daemon the driver
  // initialises every GPU of the machine at that time, which takes seconds for each.
  core::Duration hello_patience = core::Duration::Seconds(60);
  // From a request, or the answer to the one before it, to its answer. If nothing is wrong, a slab
  // is made within 0.1 s and scrubbed within 10 ms/GiB.
  core::Duration answer_patience = core::Duration::Seconds(20);
  // An idle agent is asked for its health once in this time.
  core::Duration health_period = core::Duration::Seconds(5);
  // Between an end and the next start: doubled by every end, from the first to the longest.
  core::Duration first_pause = core::Duration::Milliseconds(100);
  core::Duration longest_pause = core::Duration::Seconds(30);
  // An agent that has served this long started well: the next pause is the first again.
  core::Duration proven_after = core::Duration::Seconds(60);
  // After this many ends in a row without that, the agent is given up until Retry().
  uint32_t most_ends = 10;
};

enum class AgentState : uint32_t {
  kWaiting = 0,   // for its next start
  kStarting = 1,  // its Hello has not come
  kServing = 2,
  kEnding = 3,  // killed, and not gone yet: one that waits in the kernel may never be
  kGivenUp = 4,
};
const char* Name(AgentState state);

class Supervision {
 public:
  Supervision(SupervisionOptions options, core::Time now) : options_(options), due_(now) {}

  enum class Action {
    kNone,
    kStart,      // start the process, then tell Started() or StartFailed()
    kKill,       // end it by SIGKILL; Ended() comes when it is gone
    kAskHealth,  // send a request for its health, which Asked() counts
  };
  // What is to be done now; ask again until it is kNone. Each action is given once.
  Action Next(core::Time now);
  // When to call Next() although nothing happens; nullopt: never.
  std::optional<core::Time> NextTime() const;

  // --- what happened -----------------------------------------------------------------------------
  void Started(core::Time now);
  void StartFailed(core::Time now, const std::string& why);
  void SaidHello(core::Time now);
  void Asked(core::Time now);
  void Answered(core::Time now);
  // The agent said why it ends, broke the protocol, or closed its socket (`why` is empty then,
  // because its end tells more). It is to be killed.
  void Broke(core::Time now, const std::string& why);
  // The process is gone.
  void Ended(core::Time now, const std::string& why);
  // The operator asks for a start: at once, if one is waited for or was given up.
  void Retry(core::Time now);

  AgentState state() const { return state_; }
  bool serving() const { return state_ == AgentState::kServing; }
  uint32_t starts() const { return starts_; }
  // Why the last one ended; empty as long as none has.
  const std::string& why() const { return why_; }

 private:
  void Kill(core::Time now, const std::string& why);
  void PauseOrGiveUp(core::Time now);

  const SupervisionOptions options_;
  AgentState state_ = AgentState::kWaiting;
  core::Time due_;    // kWaiting: of the start
  core::Time since_;  // of the state
  bool kill_due_ = false;
  uint32_t outstanding_ = 0;  // requests without an answer
  core::Time heard_;          // when the oldest of these began to wait; or the last answer
  uint32_t starts_ = 0;
  uint32_t ends_in_a_row_ = 0;
  std::string why_;
};

}  // namespace geminid::agent

#endif  // GEMINID_DAEMON_AGENT_SUPERVISION_H_
