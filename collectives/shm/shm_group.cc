#include "collectives/shm/shm_group.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/deadline.h"
#include "base/status_macros.h"
#include "collectives/failure.h"

namespace geminid::collectives {
namespace {

// With fewer processors than ranks, spinning would only keep the awaited peer from running.
bool EveryRankHasAProcessor(int world_size) {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (::sched_getaffinity(0, sizeof(processors), &processors) != 0) return false;
  return CPU_COUNT(&processors) >= world_size;
}

}  // namespace

ShmGroup::ShmGroup(Segment segment, std::vector<base::UniqueFd> processes, int rank,
                   absl::Duration spin_limit, int first_rank)
    : segment_(std::move(segment)),
      processes_(std::move(processes)),
      rank_(rank),
      first_rank_(first_rank),
      spin_limit_(EveryRankHasAProcessor(world_size()) ? absl::ToChronoNanoseconds(spin_limit)
                                                       : std::chrono::nanoseconds(0)) {
  for (const base::UniqueFd& process : processes_) {
    polls_.push_back({.fd = process.get(), .events = POLLIN, .revents = 0});
  }
}

ShmGroup::~ShmGroup() {
  segment_.control(rank_).left.store(1, std::memory_order_release);
  WakeEverybody();
}

absl::Status ShmGroup::Judge(const Context& context, const std::vector<int>& missing,
                             bool look_for_the_dead) {
  GEMINID_RETURN_IF_ERROR(failure());
  for (int r : missing) {
    if (HasLeft(r)) return LeftError(NameOf(r));
  }
  if (!look_for_the_dead) return absl::OkStatus();
  if (const int dead = FirstDead(); dead >= 0) return DeathError(NameOf(dead));
  if (context.deadline.Passed()) {
    std::vector<int> names;
    for (const int r : missing) names.push_back(NameOf(r));
    return TimeoutError(context.operation, names, NameOf(rank_), context.timeout);
  }
  return absl::OkStatus();
}

absl::Status ShmGroup::DetectDeadRanks() {
  GEMINID_RETURN_IF_ERROR(failure());
  const int dead = FirstDead();
  return dead < 0 ? absl::OkStatus() : Fail(DeathError(NameOf(dead)));
}

bool ShmGroup::IsGone(int peer) const {
  if (peer == rank_) return false;
  pollfd process = {processes_[static_cast<size_t>(peer)].get(), POLLIN, 0};
  return HasLeft(peer) || ::poll(&process, 1, 0) > 0;
}

int ShmGroup::FirstDead() {
  if (::poll(polls_.data(), polls_.size(), 0) <= 0) return -1;
  for (size_t r = 0; r < polls_.size(); ++r) {
    if (polls_[r].revents == 0 || HasLeft(static_cast<int>(r))) continue;
    return static_cast<int>(r);
  }
  return -1;
}

absl::Status ShmGroup::Fail(const absl::Status& status) {
  FailureRecord& record = segment_.failure();
  uint32_t state = 0;
  if (!record.state.compare_exchange_strong(state, 1, std::memory_order_acq_rel)) {
    absl::Status earlier = failure();
    return earlier.ok() ? status : earlier;
  }
  const auto message = status.message();
  record.code = static_cast<int32_t>(status.code());
  record.length = static_cast<uint32_t>(std::min(message.size(), sizeof(record.text)));
  std::memcpy(record.text, message.data(), record.length);
  record.state.store(2, std::memory_order_release);
  WakeEverybody();
  return status;
}

absl::Status ShmGroup::failure() const {
  FailureRecord& record = segment_.failure();
  uint32_t state = record.state.load(std::memory_order_acquire);
  if (state == 0) return absl::OkStatus();
  // Takes well under a microsecond, unless the writer was killed or preempted in the middle.
  const base::Deadline patience = base::Deadline::In(absl::Milliseconds(200));
  while (state == 1 && !patience.Passed()) {
    ::sched_yield();
    state = record.state.load(std::memory_order_acquire);
  }
  if (state != 2 || record.length > sizeof(record.text) || record.code <= 0) {
    return absl::UnavailableError("a rank failed and died before it could say why");
  }
  return absl::Status(static_cast<absl::StatusCode>(record.code),
                      absl::string_view(record.text, record.length));
}

void ShmGroup::WakeEverybody() {
  for (int r = 0; r < world_size(); ++r) {
    RankControl& control = segment_.control(r);
    control.published.WakeAll();
    control.consumed.WakeAll();
    control.doorbell.WakeAll();
  }
}

}  // namespace geminid::collectives
