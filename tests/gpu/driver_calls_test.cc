// Other threads notice a driver call that does not return.
#include "gpu/driver_calls.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

namespace geminid::gpu {
namespace {

TEST(DriverCalls, OutsideOfTheDriver_ThereIsNone) {
  { const DriverCall call; }
  EXPECT_EQ(LongestDriverCall(), std::nullopt);
}

TEST(DriverCalls, CallWithinACall_CountsFromTheFirst) {
  const DriverCall outer;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
  while (std::chrono::steady_clock::now() < until) {
  }
  { const DriverCall inner; }
  EXPECT_GE(LongestDriverCall(), std::chrono::milliseconds(2));
}

TEST(DriverCalls, CallOfAnotherThread_IsSeenAndForgottenWithIt) {
  std::thread([] {
    const DriverCall call;
    std::thread([] { EXPECT_NE(LongestDriverCall(), std::nullopt); }).join();
  }).join();
  EXPECT_EQ(LongestDriverCall(), std::nullopt);
}

}  // namespace
}  // namespace geminid::gpu
