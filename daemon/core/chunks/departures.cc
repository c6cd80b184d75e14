#include "daemon/core/chunks/departures.h"

#include <array>

namespace geminid::core {

// First the chunks that are never used again. Then those next used before moment `now`, hence in
// the next iteration, the last moment first. Then those of this iteration, the last moment first.
void Departures::Walk(uint32_t now, size_t limit,
                      const std::function<Visited(const Place&)>& visit) const {
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
    // A place is copied before the visitor may erase it.
    auto it = places_.lower_bound({.next_use = first});
    while (it != places_.end() && it->next_use >= last) {
      if (visited++ == limit) return;
      const Place place = *it;
      switch (visit(place)) {
        case Visited::kOn:
          ++it;
          break;
        case Visited::kMoved:
          it = places_.upper_bound(place);
          break;
        case Visited::kStop:
          return;
      }
    }
  }
}

}  // namespace geminid::core
