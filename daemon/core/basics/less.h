#ifndef GEMINID_DAEMON_CORE_BASICS_LESS_H_
#define GEMINID_DAEMON_CORE_BASICS_LESS_H_

#include <cstdint>

namespace geminid::core {

// `bytes` - `less`, or 0 where that would be negative.
constexpr uint64_t Less(uint64_t bytes, uint64_t less) { return bytes > less ? bytes - less : 0; }

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_BASICS_LESS_H_
