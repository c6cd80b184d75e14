// Device extents are whole units of the alignment that the daemon and the planner use.
#ifndef GEMINID_CLIENT_ZERO_CORE_EXTENT_H_
#define GEMINID_CLIENT_ZERO_CORE_EXTENT_H_

#include <cstdint>

#include "base/pages.h"
#include "geminid/types.h"

namespace geminid::zero {

constexpr uint64_t RoundUpToExtent(uint64_t bytes) {
  return base::RoundUp(bytes, kExtentAlignmentBytes);
}

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_EXTENT_H_
