#include "daemon/planner/placement/extend_drains.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "daemon/planner/problem/least_capacity.h"

namespace geminid::planner {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// For each byte of the arena, the next moment at which a draft takes the byte. Time runs backwards.
class NextTaken {
 public:
  explicit NextTaken(std::int64_t size_bytes) { from_[0] = from_[size_bytes] = kNever; }

  void Take(std::int64_t begin, std::int64_t end, std::int64_t moment) {
    const auto last = Cut(end);
    const auto first = Cut(begin);
    from_.erase(first, last);
    from_[begin] = moment;
  }

  std::int64_t Over(std::int64_t begin, std::int64_t end) const {
    std::int64_t least = kNever;
    for (auto at = std::prev(from_.upper_bound(begin)); at != from_.end() && at->first < end;
         ++at) {
      least = std::min(least, at->second);
    }
    return least;
  }

 private:
  std::map<std::int64_t, std::int64_t>::iterator Cut(std::int64_t offset) {
    const auto at = std::prev(from_.upper_bound(offset));
    return at->first == offset ? at : from_.emplace(offset, at->second).first;
  }

  std::map<std::int64_t, std::int64_t> from_;  // first byte of a range -> moment
};

bool EndsInGradient(const Problem& problem, const ResidencyDraft& draft) {
  const Item& item = problem.items[draft.item];
  const std::size_t last = (draft.first_use + draft.num_uses - 1) % item.uses.size();
  return !draft.permanent && item.uses[last].invalidates && item.gradient_bytes > 0;
}

// The first moment in [begin, end) with less capacity than `bytes`, or `end`.
std::int64_t FirstBelow(const LeastCapacity& least, std::int64_t begin, std::int64_t end,
                        std::int64_t bytes) {
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (least.Over(begin, middle + 1) < bytes) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return end;
}

}  // namespace

void ExtendDrains(const PlannerOptions& options, const Problem& problem,
                  std::vector<ResidencyDraft>& drafts) {
  if (problem.without.Has(Stage::kExtendDrains)) return;
  const std::int64_t n = problem.num_moments;
  const std::vector<std::int64_t>& capacity = problem.capacity_bytes;
  const LeastCapacity least(capacity);
  // Moments 0 to 2 N: a drain that ends in one iteration may last into the next.
  struct Events {
    std::vector<std::uint32_t> begins, drains;
  };
  std::vector<Events> events(static_cast<std::size_t>(2 * n + 1));
  for (std::uint32_t i = 0; i < drafts.size(); ++i) {
    if (drafts[i].permanent) continue;
    const auto begin = static_cast<std::size_t>((drafts[i].begin + n) % n);
    events[begin].begins.push_back(i);
    events[begin + static_cast<std::size_t>(n)].begins.push_back(i);
    if (!EndsInGradient(problem, drafts[i])) continue;
    events[static_cast<std::size_t>((drafts[i].end - 1) % n + 1)].drains.push_back(i);
  }
  NextTaken next(*std::max_element(capacity.begin(), capacity.end()) + 1);
  std::vector<std::int64_t> next_of_item(problem.items.size(), kNever);
  for (std::int64_t t = 2 * n; t >= 0; --t) {
    const Events& now = events[static_cast<std::size_t>(t)];
    for (const std::uint32_t i : now.begins) {
      next.Take(drafts[i].offset_bytes,
                drafts[i].offset_bytes + problem.items[drafts[i].item].extent_bytes, t);
      next_of_item[drafts[i].item] = t;
    }
    for (const std::uint32_t i : now.drains) {
      ResidencyDraft& draft = drafts[i];
      const std::int64_t top = draft.offset_bytes + problem.items[draft.item].extent_bytes;
      const std::int64_t shift = draft.end - t;
      std::int64_t end = std::min(next.Over(draft.offset_bytes, top), next_of_item[draft.item]);
      end = std::min({end, t + n, draft.begin + n - shift});
      if (options.weights_change_between_iterations) {
        end = std::min(end, (draft.last_moment / n + 1) * n - shift);
      }
      if (end > t) draft.end = FirstBelow(least, t, end, top) + shift;
    }
  }
}

}  // namespace geminid::planner
