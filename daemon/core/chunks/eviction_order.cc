#include "daemon/core/chunks/eviction_order.h"

#include <array>

namespace geminid::core {

// First the chunks that are never used again. Then those next used before moment `now`, hence in
// the next iteration, the last moment first. Then those of this iteration, the last moment first.
void EvictionOrder::Walk(uint32_t now, size_t limit,
                         const std::function<WalkStep(const Entry&)>& visit) const {
  // The moments of a part: from `first` down to `last`.
  struct Part {
    uint32_t first;
    uint32_t last;
  };
  const std::array<Part, 3> parts = {
      {{kNever, kNever}, {now > 0 ? now - 1 : 0, 0}, {kNever - 1, now}}};
  size_t visited = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i == 1 && now == 0) continue;  // no moment is in the past
    const auto [first, last] = parts[i];
    // An entry is copied before the visitor may erase it.
    auto it = entries_.lower_bound({.next_use = first});
    while (it != entries_.end() && it->next_use >= last) {
      if (visited++ == limit) return;
      const Entry entry = *it;
      switch (visit(entry)) {
        case WalkStep::kOn:
          ++it;
          break;
        case WalkStep::kMoved:
          it = entries_.upper_bound(entry);
          break;
        case WalkStep::kStop:
          return;
      }
    }
  }
}

}  // namespace geminid::core
