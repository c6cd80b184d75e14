// Limits of this process, as ulimit(1) sets them, that keep it or its children from having memory.
#ifndef GEMINID_BASE_MEMORY_LIMITS_H_
#define GEMINID_BASE_MEMORY_LIMITS_H_

#include <string>

namespace geminid::base {

// For the end of a message: what is limited to how much, and how to lift it. Empty without limits.
std::string DescribeMemoryLimits();

}  // namespace geminid::base

#endif  // GEMINID_BASE_MEMORY_LIMITS_H_
