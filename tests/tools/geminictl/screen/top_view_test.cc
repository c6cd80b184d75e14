#include "tools/geminictl/screen/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tools/geminictl/output/format.h"

namespace geminid::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr Style kPlain = {};
constexpr Screen kWide = {.width = 200, .height = 0};

v1::SessionInfo Session(uint64_t number, double attached_seconds, double copy_stall_seconds) {
  v1::SessionInfo session;
  session.set_session(number);
  session.set_job("demo");
  session.set_world_size(2);
  session.set_attached_seconds(attached_seconds);
  (*session.mutable_stall_seconds())["copy"] = copy_stall_seconds;
  session.set_device_bytes(4 * kMiB);
  session.set_device_in_use_bytes(2 * kMiB);
  session.set_device_workspace_bytes(kMiB);
  return session;
}

Reading Example(double taken_seconds) {
  Reading reading;
  reading.taken_seconds = taken_seconds;
  reading.status.set_version("1.2.3");
  reading.status.set_phase("serving");
  v1::Ledger* const ledger = reading.status.mutable_ledger();
  ledger->set_adds_up(true);
  v1::TierLedger* const tier = ledger->add_tiers();
  tier->set_tier(v1::TIER_DEVICE);
  tier->set_device(1);
  tier->set_capacity_bytes(8 * kMiB);
  tier->set_in_use_bytes(2 * kMiB);
  tier->set_reserved_bytes(2 * kMiB);
  tier->set_free_bytes(4 * kMiB);
  ledger->add_tiers()->set_tier(v1::TIER_DISK);  // it has no capacity
  return reading;
}

TEST(RankByRank, WithoutBefore_RatesAreSinceAttach) {
  Reading now = Example(100);
  *now.sessions.add_sessions() = Session(1, 10, 1);
  (*now.sessions.mutable_sessions(0)->mutable_transfer_bytes())["host_to_device/demand"] = 1000;
  (*now.sessions.mutable_sessions(0)->mutable_transfer_bytes())["host_to_device/prefetch"] = 500;
  (*now.sessions.mutable_sessions(0)->mutable_transfer_bytes())["device_to_host/update"] = 20;
  const std::vector<RankRates> ranks = RankByRank(now, nullptr, TopOrder::kStall);
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_DOUBLE_EQ(ranks[0].stall_share, 0.1);
  EXPECT_EQ(ranks[0].stall_cause, "copy");
  EXPECT_DOUBLE_EQ(ranks[0].to_device_bytes_per_second, 150);
  EXPECT_DOUBLE_EQ(ranks[0].to_host_bytes_per_second, 2);
}

TEST(RankByRank, WithBefore_RatesAreOfTheTimeBetween) {
  Reading before = Example(100);
  *before.sessions.add_sessions() = Session(1, 10, 1);
  (*before.sessions.mutable_sessions(0)->mutable_stall_seconds())["reduce"] = 5;
  Reading now = Example(102);
  *now.sessions.add_sessions() = Session(1, 12, 2);
  (*now.sessions.mutable_sessions(0)->mutable_stall_seconds())["reduce"] = 5;
  *now.sessions.add_sessions() = Session(2, 1, 0.25);  // attached between the readings
  const std::vector<RankRates> ranks = RankByRank(now, &before, TopOrder::kStall);
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0].session->session(), 1u);
  EXPECT_DOUBLE_EQ(ranks[0].stall_share, 0.5);
  EXPECT_EQ(ranks[0].stall_cause, "copy");  // reduce is larger, but before the interval
  EXPECT_DOUBLE_EQ(ranks[1].stall_share, 0.25);
}

TEST(RankByRank, Order_IsByStallOrByBytes) {
  Reading now = Example(0);
  *now.sessions.add_sessions() = Session(1, 10, 1);
  *now.sessions.add_sessions() = Session(2, 10, 2);
  now.sessions.mutable_sessions(0)->set_host_bytes(kMiB);
  EXPECT_EQ(RankByRank(now, nullptr, TopOrder::kStall)[0].session->session(), 2u);
  EXPECT_EQ(RankByRank(now, nullptr, TopOrder::kBytes)[0].session->session(), 1u);
}

TEST(DrawTop, Bars_ShowTiersWithCapacityAndArenas) {
  Reading now = Example(0);
  *now.sessions.add_sessions() = Session(7, 10, 1);
  const std::string text = DrawTop(now, nullptr, TopOrder::kStall, kWide, kPlain);
  EXPECT_THAT(text, HasSubstr("device 1 "));
  EXPECT_THAT(text, HasSubstr("50.0 % of 8.0 MiB"));
  EXPECT_THAT(text, HasSubstr("arena of 7"));
  EXPECT_THAT(text, HasSubstr("75.0 % of 4.0 MiB"));
  EXPECT_THAT(text, HasSubstr("since each rank attached"));
  EXPECT_THAT(text, Not(HasSubstr("disk")));
  EXPECT_THAT(text, Not(HasSubstr("does NOT add up")));
  for (const char c : text) EXPECT_LT(static_cast<unsigned char>(c), 0x80) << "not ASCII";
}

TEST(DrawTop, BrokenLedger_IsSaid) {
  Reading now = Example(0);
  now.status.mutable_ledger()->set_adds_up(false);
  EXPECT_THAT(DrawTop(now, nullptr, TopOrder::kStall, kWide, kPlain), HasSubstr("does NOT add up"));
}

TEST(DrawTop, NoSession_IsSaid) {
  EXPECT_THAT(DrawTop(Example(0), nullptr, TopOrder::kStall, kWide, kPlain),
              HasSubstr("no session is attached"));
}

Reading ManyRanks(uint64_t ranks, const std::string& job) {
  Reading now = Example(0);
  for (const int device : {2, 3}) {
    *now.status.mutable_ledger()->add_tiers() = now.status.ledger().tiers(0);
    now.status.mutable_ledger()->mutable_tiers()->rbegin()->set_device(
        static_cast<uint32_t>(device));
  }
  for (uint64_t i = 1; i <= ranks; ++i) {
    *now.sessions.add_sessions() = Session(i, 10, 1);
    now.sessions.mutable_sessions()->rbegin()->set_job(job);
  }
  return now;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// From 40 columns and 10 lines on, the output fits and shows ranks and keys.
TEST(DrawTop, EveryScreen_IsFilledAndNotExceeded) {
  const Style style = {.terminal = true, .color = false, .unicode = true};
  for (const uint64_t ranks : {0, 1, 4, 30}) {
    for (const char* job :
         {"a", "a-job-with-a-name-that-is-as-long-as-a-name-may-be-in-all-of-it"}) {
      const Reading now = ManyRanks(ranks, job);
      for (size_t width = 40; width <= 210; width += width < 80 ? 4 : 43) {
        for (size_t height = 10; height <= 60; height += height < 20 ? 3 : 19) {
          const Screen screen = {.width = width, .height = height, .keys = "q quit"};
          const std::string text = DrawTop(now, nullptr, TopOrder::kStall, screen, style);
          const std::vector<std::string> lines = LinesOf(text);
          ASSERT_EQ(lines.size(), height);
          for (const std::string& line : lines) ASSERT_LE(DisplayWidth(line), width) << line;
          ASSERT_EQ(lines.back(), "q quit");
          ASSERT_THAT(text, HasSubstr("% of 8.0 MiB"));
          ASSERT_THAT(text, HasSubstr(ranks == 0 ? "no session is attached" : "SESSION  JOB"));
          if (ranks > 0) {
            ASSERT_THAT(text, HasSubstr("10.0 %"));
          }
        }
      }
    }
  }
}

TEST(DrawTop, WhatIsLeftOut_IsCounted) {
  const Screen screen = {.width = 80, .height = 12, .keys = "q quit"};
  const std::string text =
      DrawTop(ManyRanks(30, "demo"), nullptr, TopOrder::kStall, screen, kPlain);
  EXPECT_THAT(text, HasSubstr("ranks more"));
  EXPECT_THAT(DrawTop(ManyRanks(30, "demo"), nullptr, TopOrder::kStall, kWide, kPlain),
              Not(HasSubstr("more")));
}

TEST(DrawTop, NarrowScreen_KeepsWhatMattersMost) {
  const std::string text =
      DrawTop(ManyRanks(1, "demo"), nullptr, TopOrder::kStall, {.width = 50, .height = 24}, kPlain);
  EXPECT_THAT(text, HasSubstr("STALL"));
  EXPECT_THAT(text, Not(HasSubstr("PID")));
  EXPECT_THAT(DrawTop(ManyRanks(1, "demo"), nullptr, TopOrder::kStall, kWide, kPlain),
              HasSubstr("PID"));
}

TEST(DrawWaiting, LongWords_AreBroken) {
  const std::string text =
      DrawWaiting("there is no daemon at " + std::string(90, 'x') + "; start it",
                  {.width = 40, .height = 10}, kPlain);
  for (const std::string& line : LinesOf(text)) EXPECT_LE(DisplayWidth(line), 40u);
  EXPECT_THAT(text, HasSubstr("q quits"));
  EXPECT_THAT(text, HasSubstr("start it"));
}

}  // namespace
}  // namespace geminid::ctl
