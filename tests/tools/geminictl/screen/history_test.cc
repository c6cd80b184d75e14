#include "tools/geminictl/screen/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/geminictl/output/format.h"
#include "tools/geminictl/screen/top_view.h"

namespace geminid::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr Style kAscii = {};
constexpr Style kUnicode = {.terminal = true, .color = false, .unicode = true};

// A device of 100 bytes, and a session that attached 10 s ago and has waited for this time.
Reading At(double taken_seconds, uint64_t in_use, double stalled_seconds) {
  Reading reading;
  reading.taken_seconds = taken_seconds;
  v1::TierLedger* const tier = reading.status.mutable_ledger()->add_tiers();
  reading.status.mutable_ledger()->set_adds_up(true);
  tier->set_tier(v1::TIER_DEVICE);
  tier->set_device(0);
  tier->set_capacity_bytes(100);
  tier->set_in_use_bytes(in_use);
  tier->set_reserved_bytes(10);
  v1::SessionInfo* const session = reading.sessions.add_sessions();
  session->set_session(7);
  session->set_job("demo");
  session->set_attached_seconds(10);
  (*session->mutable_stall_seconds())["copy"] = stalled_seconds;
  return reading;
}

TEST(Sparkline, Shares_AreHeightsWithTheLatestAtTheRight) {
  EXPECT_EQ(Sparkline({0, 0.01, 0.5, 1}, 6, kAscii), "   .+@");
  EXPECT_EQ(Sparkline({0, 0.01, 0.5, 1}, 4, kUnicode), " ▁▄█");
  EXPECT_EQ(Sparkline({0.2, 0.5, 1}, 2, kAscii), "+@");
  EXPECT_EQ(Sparkline({-1, 7}, 2, kAscii), " @");
  EXPECT_EQ(Sparkline({}, 3, kUnicode), "   ");
}

TEST(Sparkline, Width_IsAlwaysThatManyCharacters) {
  for (size_t known = 0; known < 5; ++known) {
    EXPECT_EQ(DisplayWidth(Sparkline(std::deque<double>(known, 0.7), 4, kUnicode)), 4u);
  }
}

TEST(History, Readings_BecomeSharesOfMemoryAndOfTime) {
  History history;
  const Reading first = At(100, 40, 1);
  const Reading second = At(102, 90, 2);
  history.Add(first, nullptr);
  history.Add(second, &first);
  EXPECT_THAT(history.Tier("device 0"), ElementsAre(0.5, 1.0));
  EXPECT_THAT(history.Stall(7), ElementsAre(0.1, 0.5));  // 1 s of 10 s, then 1 s of 2 s
  EXPECT_THAT(history.Tier("host"), IsEmpty());
}

TEST(History, WhatIsGone_IsForgotten) {
  History history;
  history.Add(At(100, 40, 1), nullptr);
  history.Add(Reading(), nullptr);
  EXPECT_THAT(history.Tier("device 0"), IsEmpty());
  EXPECT_THAT(history.Stall(7), IsEmpty());
}

TEST(History, OldReadings_GiveWay) {
  History history;
  for (size_t i = 0; i < kHistoryLength + 5; ++i) history.Add(At(0, i < 5 ? 0 : 90, 0), nullptr);
  EXPECT_EQ(history.Tier("device 0").size(), kHistoryLength);
  EXPECT_DOUBLE_EQ(history.Tier("device 0").front(), 1.0);
}

TEST(DrawTop, History_IsDrawnWhereThereIsRoom) {
  History history;
  const Reading first = At(100, 40, 1);
  const Reading second = At(102, 90, 2);
  history.Add(first, nullptr);
  history.Add(second, &first);
  const auto draw = [&](size_t width) {
    return DrawTop(second, &first, TopOrder::kStall, {.width = width}, kAscii, &history);
  };
  EXPECT_THAT(draw(200), HasSubstr("+@\n"));  // the device: half, then all of it
  EXPECT_THAT(draw(200), HasSubstr("STALL_HISTORY"));
  EXPECT_THAT(draw(200), HasSubstr(".+\n"));  // the rank: a tenth, then a half
  EXPECT_THAT(draw(50), Not(HasSubstr("STALL_HISTORY")));
  EXPECT_THAT(draw(50), HasSubstr("STALL"));
}

TEST(FitScreen, LongText_IsCutAndSaysSo) {
  EXPECT_EQ(FitScreen("abc\ndef\nghi\n", {.width = 2, .height = 2}), "ab\n..\n");
  EXPECT_EQ(FitScreen("abc\n", {.width = 9, .height = 0}), "abc\n");
}

}  // namespace
}  // namespace geminid::ctl
