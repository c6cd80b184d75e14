#include "daemon/agent/supervision.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::agent {

const char* Name(AgentState state) {
  switch (state) {
    case AgentState::kWaiting:
      return "waiting";
    case AgentState::kStarting:
      return "starting";
    case AgentState::kServing:
      return "serving";
    case AgentState::kEnding:
      return "ending";
    case AgentState::kGivenUp:
      return "given up";
  }
  return "unknown";
}

Supervision::Action Supervision::Next(core::Time now) {
  switch (state_) {
    case AgentState::kWaiting:
      return now < due_ ? Action::kNone : Action::kStart;
    case AgentState::kStarting:
      if (now - since_ >= options_.hello_patience) {
        Kill(now, absl::StrCat("it sent nothing for ", options_.hello_patience.seconds(), " s"));
      }
      break;
    case AgentState::kServing:
      if (outstanding_ > 0 && now - heard_ >= options_.answer_patience) {
        Kill(now, absl::StrCat("it did not answer for ", options_.answer_patience.seconds(), " s"));
      } else if (outstanding_ == 0 && now - heard_ >= options_.health_period) {
        return Action::kAskHealth;
      }
      break;
    case AgentState::kEnding:
    case AgentState::kGivenUp:
      break;
  }
  if (!kill_due_) return Action::kNone;
  kill_due_ = false;
  return Action::kKill;
}

std::optional<core::Time> Supervision::NextTime() const {
  if (kill_due_) return since_;
  switch (state_) {
    case AgentState::kWaiting:
      return due_;
    case AgentState::kStarting:
      return since_ + options_.hello_patience;
    case AgentState::kServing:
      return heard_ + (outstanding_ > 0 ? options_.answer_patience : options_.health_period);
    case AgentState::kEnding:
    case AgentState::kGivenUp:
      break;
  }
  return std::nullopt;
}

void Supervision::Started(core::Time now) {
  state_ = AgentState::kStarting;
  since_ = now;
  outstanding_ = 0;
  ++starts_;
}

void Supervision::StartFailed(core::Time now, const std::string& why) {
  ++starts_;
  why_ = why;
  PauseOrGiveUp(now);
}

void Supervision::SaidHello(core::Time now) {
  if (state_ != AgentState::kStarting) return Broke(now, "it said hello twice");
  state_ = AgentState::kServing;
  since_ = now;
  heard_ = now;
}

void Supervision::Asked(core::Time now) {
  if (outstanding_++ == 0) heard_ = now;
}

void Supervision::Answered(core::Time now) {
  if (outstanding_ == 0) return Broke(now, "it answered a request that was never sent");
  --outstanding_;
  heard_ = now;
}

void Supervision::Broke(core::Time now, const std::string& why) {
  if (state_ == AgentState::kStarting || state_ == AgentState::kServing) Kill(now, why);
}

void Supervision::Ended(core::Time now, const std::string& why) {
  if (state_ == AgentState::kWaiting || state_ == AgentState::kGivenUp) return;
  // If the agent was killed, the reason for that tells more.
  if (state_ != AgentState::kEnding || why_.empty()) why_ = why;
  if (state_ == AgentState::kServing && now - since_ >= options_.proven_after) ends_in_a_row_ = 0;
  kill_due_ = false;
  PauseOrGiveUp(now);
}

void Supervision::Retry(core::Time now) {
  ends_in_a_row_ = 0;
  if (state_ != AgentState::kWaiting && state_ != AgentState::kGivenUp) return;
  state_ = AgentState::kWaiting;
  since_ = now;
  due_ = now;
}

void Supervision::Kill(core::Time now, const std::string& why) {
  if (state_ == AgentState::kServing && now - since_ >= options_.proven_after) ends_in_a_row_ = 0;
  state_ = AgentState::kEnding;
  since_ = now;
  why_ = why;
  kill_due_ = true;
}

void Supervision::PauseOrGiveUp(core::Time now) {
  outstanding_ = 0;
  since_ = now;
  if (++ends_in_a_row_ >= options_.most_ends) {
    state_ = AgentState::kGivenUp;
    return;
  }
  core::Duration pause = options_.first_pause;
  for (uint32_t i = 1; i < ends_in_a_row_ && pause < options_.longest_pause; ++i) {
    pause = pause + pause;
  }
  state_ = AgentState::kWaiting;
  due_ = now + std::min(pause, options_.longest_pause);
}

}  // namespace geminid::agent
