// A check's finding: whether the bits agree, and the speed.
#ifndef GEMINID_TOOLS_KERNEL_CHECK_FINDING_H_
#define GEMINID_TOOLS_KERNEL_CHECK_FINDING_H_

#include <cstddef>
#include <string>

namespace geminid::kernel_check {

struct Finding {
  std::string name;
  bool passed = false;
  std::string detail;                // of a failure: the first difference
  size_t compared = 0;               // values compared bit for bit
  double bytes_per_second = 0;       // reads and writes; 0: not timed
  double operations_per_second = 0;  // instead, for a kernel whose time is arithmetic
};

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_FINDING_H_
