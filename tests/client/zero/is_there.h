// Whether there is memory at an address, without touching it.
#ifndef GEMINID_TESTS_CLIENT_ZERO_IS_THERE_H_
#define GEMINID_TESTS_CLIENT_ZERO_IS_THERE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace geminid::zero {

inline bool IsThere(const std::byte* address) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const bool there = write(ends[1], address, 1) == 1;
  EXPECT_TRUE(there || errno == EFAULT);
  close(ends[0]);
  close(ends[1]);
  return there;
}

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_IS_THERE_H_
