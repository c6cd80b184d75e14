#include "daemon/planner/hierarchy/part.h"

namespace geminid::planner {

const char* PartName(Part part) {
  static constexpr const char* kNames[kNumParts] = {
      "the device filled evenly",  "the dual",
      "chains of updates",         "an even price, low",
      "an even price, high",       "the state that is waited for",
      "held-back space",           "changes of one item",
      "changes of two items",      "restarts",
      "smaller caches of the disk"};
  return kNames[static_cast<std::size_t>(part)];
}

}  // namespace geminid::planner
