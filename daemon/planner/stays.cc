#include "daemon/planner/stays.h"

#include <algorithm>

namespace geminid::planner {
namespace {

const ItemUse& UseOf(const Problem& problem, const Stay& stay, std::uint32_t j) {
  const Item& item = problem.items[stay.item];
  return item.uses[(stay.first_use + j) % item.uses.size()];
}

// Sets the moments from the uses, without prefetch.
Stay MakeStay(const Problem& problem, std::uint32_t item, std::uint32_t first_use,
              std::uint32_t num_uses) {
  Stay stay{.item = item, .first_use = first_use, .num_uses = num_uses};
  stay.first_moment = UseMoment(problem, stay, 0);
  stay.last_moment = UseMoment(problem, stay, num_uses - 1);
  stay.begin = stay.first_moment;
  const ItemUse& last = UseOf(problem, stay, num_uses - 1);
  stay.end = stay.last_moment + (last.free_moment - last.moment);
  return stay;
}

void AppendStaysOf(const Problem& problem, std::uint32_t index, const Kept& kept,
                   std::vector<Stay>& stays) {
  const Item& item = problem.items[index];
  const auto count = static_cast<std::uint32_t>(item.uses.size());
  const auto is_kept = [&](std::uint32_t k) { return kept[item.first_gap + k % count] != 0; };
  std::uint32_t run_starts = 0;
  for (std::uint32_t k = 0; k < count; ++k) {
    if (is_kept(k + count - 1)) continue;  // bridged from the use before
    ++run_starts;
    std::uint32_t num_uses = 1;
    while (is_kept(k + num_uses - 1)) ++num_uses;
    stays.push_back(MakeStay(problem, index, k, num_uses));
  }
  if (run_starts > 0) return;
  Stay stay = MakeStay(problem, index, 0, count);
  stay.permanent = true;
  stay.begin = 0;
  stay.end = problem.num_moments;
  stays.push_back(stay);
}

void IsolateOne(const Problem& problem, std::int64_t moment, std::size_t index,
                std::vector<Stay>& stays) {
  if (stays[index].permanent) {
    std::uint32_t j = 0;  // the last use before `moment`, or the last of all
    while (j + 1 < stays[index].num_uses && UseMoment(problem, stays[index], j + 1) < moment) ++j;
    if (UseMoment(problem, stays[index], 0) >= moment) j = stays[index].num_uses - 1;
    SplitAfter(problem, j, index, stays);
  }
  const std::int64_t n = problem.num_moments;
  for (std::int64_t at = moment - n; at <= moment + n; at += n) {
    Stay& stay = stays[index];
    if (at < stay.begin || at >= stay.end) continue;
    if (at > stay.last_moment) {
      stay.end = at;
      return;
    }
    if (at <= stay.first_moment) {
      stay.begin = stay.first_moment;
      stay.limit = StallCause::kSpace;
      if (at < stay.first_moment) return;
    }
    if (at == stay.last_moment) stay.end = at + 1;
    std::uint32_t before = 0;  // uses before the moment
    while (UseMoment(problem, stay, before) < at) ++before;
    const bool used = UseMoment(problem, stay, before) == at;
    if (used && before + 1 < stay.num_uses) SplitAfter(problem, before, index, stays);
    if (before > 0) SplitAfter(problem, before - 1, index, stays);
    return;
  }
}

}  // namespace

std::int64_t UseMoment(const Problem& problem, const Stay& stay, std::uint32_t j) {
  const std::size_t count = problem.items[stay.item].uses.size();
  const std::int64_t cycle = static_cast<std::int64_t>((stay.first_use + j) / count);
  return UseOf(problem, stay, j).moment + cycle * problem.num_moments;
}

std::size_t GapAfter(const Problem& problem, const Stay& stay, std::uint32_t j) {
  const Item& item = problem.items[stay.item];
  return item.first_gap + (stay.first_use + j) % item.uses.size();
}

std::vector<Stay> BuildStays(const Problem& problem, const Kept& kept) {
  std::vector<Stay> stays;
  for (std::uint32_t i = 0; i < problem.items.size(); ++i) {
    AppendStaysOf(problem, i, kept, stays);
  }
  return stays;
}

void SplitAfter(const Problem& problem, std::uint32_t j, std::size_t index,
                std::vector<Stay>& stays) {
  const Stay whole = stays[index];
  const auto count = static_cast<std::uint32_t>(problem.items[whole.item].uses.size());
  const std::uint32_t next_use = (whole.first_use + j + 1) % count;
  if (whole.permanent) {
    stays[index] = MakeStay(problem, whole.item, next_use, whole.num_uses);
    stays[index].limit = StallCause::kSpace;
    return;
  }
  Stay& head = stays[index];
  head.num_uses = j + 1;
  head.last_moment = UseMoment(problem, head, j);
  head.end = head.last_moment + 1;  // only the last use of a stay can invalidate
  Stay tail = MakeStay(problem, whole.item, next_use, whole.num_uses - j - 1);
  tail.end = tail.last_moment + (whole.end - whole.last_moment);
  tail.limit = StallCause::kSpace;
  stays.push_back(tail);
}

void Isolate(const Problem& problem, std::int64_t moment, std::vector<Stay>& stays) {
  const std::size_t count = stays.size();  // what a split appends cannot be alive at the moment
  for (std::size_t i = 0; i < count; ++i) IsolateOne(problem, moment, i, stays);
}

std::vector<Stay> SingleUses(const Problem& problem) {
  std::vector<Stay> stays = BuildStays(problem, Kept(problem.gaps.size(), 0));
  for (Stay& stay : stays) {
    stay.end = stay.last_moment + 1;
    stay.limit = StallCause::kSpace;
  }
  return stays;
}

std::uint64_t LoadBytes(const Problem& problem, const std::vector<Stay>& stays) {
  std::uint64_t bytes = 0;
  for (const Stay& stay : stays) {
    if (!stay.permanent) bytes += problem.items[stay.item].transfer_bytes;
  }
  return bytes;
}

}  // namespace geminid::planner
