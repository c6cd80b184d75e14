#include "collectives/tcp/group_news.h"

namespace geminid::collectives {

void GroupNews::Listen(const std::string& group, GroupListener* listener) {
  const std::lock_guard lock(mutex_);
  listeners_[group] = listener;
  const auto failure = failures_.find(group);
  if (failure != failures_.end()) listener->OnFailure(failure->second);
  for (const auto& [rank, death] : dead_) listener->OnDeath(death);
  for (const int rank : leaves_[group]) listener->OnLeave(rank);
}

void GroupNews::Unlisten(const std::string& group) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(group);
}

void GroupNews::Failed(const std::string& group, const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  failures_.emplace(group, status);
  const auto listener = listeners_.find(group);
  if (listener != listeners_.end()) listener->second->OnFailure(status);
}

void GroupNews::Left(const std::string& group, int world_rank) {
  const std::lock_guard lock(mutex_);
  leaves_[group].insert(world_rank);
  const auto listener = listeners_.find(group);
  if (listener != listeners_.end()) listener->second->OnLeave(world_rank);
}

void GroupNews::Died(const Death& death) {
  const std::lock_guard lock(mutex_);
  dead_.emplace(death.rank, death);
  for (const auto& [group, listener] : listeners_) listener->OnDeath(death);
}

bool GroupNews::IsDead(int world_rank) const {
  const std::lock_guard lock(mutex_);
  return dead_.contains(world_rank);
}

}  // namespace geminid::collectives
