#include "collectives/tcp/group_events.h"

namespace geminid::collectives {

void GroupEvents::Listen(const std::string& group, GroupListener* listener) {
  const std::lock_guard lock(mutex_);
  listeners_[group] = listener;
  const auto failure = failures_.find(group);
  if (failure != failures_.end()) listener->OnFailure(failure->second);
  for (const auto& [rank, death] : dead_) listener->OnDeath(death);
  for (const int rank : leaves_[group]) listener->OnLeave(rank);
}

void GroupEvents::Unlisten(const std::string& group) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(group);
}

void GroupEvents::Failed(const std::string& group, const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  failures_.emplace(group, status);
  const auto listener = listeners_.find(group);
  if (listener != listeners_.end()) listener->second->OnFailure(status);
}

void GroupEvents::Left(const std::string& group, int world_rank) {
  const std::lock_guard lock(mutex_);
  leaves_[group].insert(world_rank);
  const auto listener = listeners_.find(group);
  if (listener != listeners_.end()) listener->second->OnLeave(world_rank);
}

void GroupEvents::Died(const RankDeath& death) {
  const std::lock_guard lock(mutex_);
  dead_.emplace(death.rank, death);
  for (const auto& [group, listener] : listeners_) listener->OnDeath(death);
}

bool GroupEvents::IsDead(int world_rank) const {
  const std::lock_guard lock(mutex_);
  return dead_.contains(world_rank);
}

}  // namespace geminid::collectives
