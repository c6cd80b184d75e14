// Limits of this process, as set by ulimit(1), on its memory and its children's.
#ifndef GEMINID_BASE_MEMORY_LIMITS_H_
#define GEMINID_BASE_MEMORY_LIMITS_H_

#include <string>

namespace geminid::base {

// For the end of a message: each limit, and how to raise it. Empty without limits.
std::string DescribeMemoryLimits();

}  // namespace geminid::base

#endif  // GEMINID_BASE_MEMORY_LIMITS_H_
