#include "client/zero/core/link_meter.h"

#include <gtest/gtest.h>

namespace geminid::zero {
namespace {

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(LinkMeter, BeforeAnyTransfer_KnowsNothing) { EXPECT_EQ(LinkMeter().BytesPerSecond(), 0); }

TEST(LinkMeter, TransfersThatOverlap_ShareTheirTime) {
  LinkMeter meter;
  meter.Begin(At(0));
  meter.Begin(At(0));
  meter.Begin(At(1));
  meter.End(At(1), 100);
  meter.End(At(2), 100);
  meter.End(At(3), 100);
  EXPECT_DOUBLE_EQ(meter.BytesPerSecond(), 100);
  // Idle time does not count.
  meter.Begin(At(10));
  meter.End(At(11), 100);
  EXPECT_DOUBLE_EQ(meter.BytesPerSecond(), 100);
}

}  // namespace
}  // namespace geminid::zero
