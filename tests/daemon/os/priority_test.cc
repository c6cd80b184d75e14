#include "daemon/os/priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace geminid::os {
namespace {

int NiceOfThisThread() {
  return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)));
}

TEST(GiveWay, Thread_AndThoseItStartsAreNicer_TheOthersStayAsTheyWere) {
  const int before = NiceOfThisThread();
  int once = 0, twice = 0, child = 0;
  std::thread([&] {
    GiveWay();
    once = NiceOfThisThread();
    std::thread([&] { child = NiceOfThisThread(); }).join();
    GiveWay();
    twice = NiceOfThisThread();
  }).join();
  EXPECT_EQ(once, std::min(before + kNicerBy, 19));
  EXPECT_EQ(child, once);
  EXPECT_EQ(twice, once);
  EXPECT_EQ(NiceOfThisThread(), before);
}

}  // namespace
}  // namespace geminid::os
