#include "daemon/planner/hierarchy/part.h"

namespace geminid::planner {

const char* PartName(Part part) {
  static constexpr const char* kNames[kNumParts] = {"the device filled evenly",
                                                    "the dual",
                                                    "chains of updates",
                                                    "rounding at the prices",
                                                    "rounding without prices",
                                                    "rounding with streaming",
                                                    "rounding without the device",
                                                    "an even price, low",
                                                    "an even price, high",
                                                    "the state that is waited for",
                                                    "the pass with a soft norm",
                                                    "the pass with a hard norm",
                                                    "the pass without prices",
                                                    "held-back space",
                                                    "an even part of weights",
                                                    "changes of one item",
                                                    "changes of two items",
                                                    "search from other starts",
                                                    "restarts",
                                                    "smaller caches of the disk"};
  return kNames[static_cast<std::size_t>(part)];
}

}  // namespace geminid::planner
