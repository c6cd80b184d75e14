#include "daemon/service/sessions/waker.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "absl/strings/str_cat.h"

namespace geminid::service {
namespace {

using core::Duration;

constexpr Duration kQuick = Duration::Nanoseconds(5'000);
constexpr Duration kLong = Duration::Milliseconds(64);

core::Time At(int64_t milliseconds) { return core::Time() + Duration::Milliseconds(milliseconds); }

class FakeSleeper : public SleepingClient {
 public:
  explicit FakeSleeper(std::string tenant) : tenant_(std::move(tenant)) {}
  const std::string& tenant() const override { return tenant_; }
  void Wake(End) const override {}

 private:
  const std::string tenant_;
};

SleepingClientPtr Client(const std::string& tenant) {
  return std::make_shared<FakeSleeper>(tenant);
}

TEST(WakeUpSchedule, TenantWhoseWakeUpLasted_IsLeftToTheThreadUntilItIsQuickAgain) {
  WakeUpSchedule turns;
  EXPECT_FALSE(turns.IsLeftToThread("a", At(0)));
  turns.Suspect("a");
  EXPECT_TRUE(turns.IsLeftToThread("a", At(5000)));
  EXPECT_FALSE(turns.IsLeftToThread("b", At(0))) << "it is no business of other tenants";
  // The thread waited for a processor; the wake-up itself is quick.
  turns.Took("a", kQuick, At(5000));
  EXPECT_FALSE(turns.IsLeftToThread("a", At(5000)));
}

TEST(WakeUpSchedule, TenantWhoseWakeUpsLast_IsLeftToTheThreadTwiceAsLongEachTime) {
  WakeUpSchedule turns;
  turns.Took("a", kLong, At(0));
  EXPECT_TRUE(turns.IsLeftToThread("a", At(999)));
  EXPECT_FALSE(turns.IsLeftToThread("a", At(1000)));
  turns.Took("a", kQuick, At(1500));
  turns.Took("a", kLong, At(2000));
  EXPECT_TRUE(turns.IsLeftToThread("a", At(3999)));
  EXPECT_FALSE(turns.IsLeftToThread("a", At(4000)));
  for (int i = 0; i < 20; ++i) turns.Took("a", kLong, At(5000));
  EXPECT_TRUE(turns.IsLeftToThread("a", At(5000 + 599'999)));
  EXPECT_FALSE(turns.IsLeftToThread("a", At(5000 + 600'000)));
}

TEST(WakeUpSchedule, OneThatWaits_IsNotSentTwice) {
  WakeUpSchedule turns;
  const SleepingClientPtr a = Client("a");
  for (int i = 0; i < 1000; ++i) turns.Add(a, SleepingClient::End::kNothing);
  turns.Add(a, SleepingClient::End::kAll);
  turns.Add(a, SleepingClient::End::kNothing);
  const WakeUpSchedule::WakeUp turn = turns.Next(At(0));
  EXPECT_EQ(turn.sleeper, a);
  EXPECT_EQ(turn.end, SleepingClient::End::kAll);
  EXPECT_EQ(turns.Next(At(0)).sleeper, nullptr);
  // An addition during the wake-up may be for newer work.
  turns.Add(a, SleepingClient::End::kNothing);
  EXPECT_NE(turns.Next(At(0)).sleeper, nullptr);
}

TEST(WakeUpSchedule, Tenants_TakeTurnsWhoeverHasMany) {
  WakeUpSchedule turns;
  std::vector<SleepingClientPtr> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(Client("many"));
    turns.Add(clients.back(), SleepingClient::End::kNothing);
  }
  const SleepingClientPtr one = Client("one");
  turns.Add(one, SleepingClient::End::kNothing);
  EXPECT_EQ(turns.Next(At(0)).sleeper->tenant(), "many");
  EXPECT_EQ(turns.Next(At(0)).sleeper->tenant(), "one");
}

TEST(WakeUpSchedule, TenantWhoseWakeUpsLast_HasATenthOfAProcessor) {
  WakeUpSchedule turns;
  std::vector<SleepingClientPtr> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(Client("many"));
    turns.Add(clients.back(), SleepingClient::End::kNothing);
  }
  int64_t at = 0, busy = 0;
  while (at < 100'000) {
    if (turns.Next(At(at)).sleeper != nullptr) {
      busy += 64;
      at += 64;
      turns.Took("many", kLong, At(at));
    } else {
      ASSERT_GT(*turns.NextAt(), At(at));
      at = turns.NextAt()->nanoseconds() / 1'000'000;
    }
  }
  EXPECT_NEAR(static_cast<double>(busy), 10'000, 200);
}

TEST(WakeUpSchedule, Forgotten_AreThoseWhoseWakeUpsHaveNotLastedForAWhile) {
  WakeUpSchedule turns;
  turns.Took("a", kLong, At(0));
  turns.Forget(At(1999));
  EXPECT_FALSE(turns.knows_nobody());
  turns.Forget(At(2000));
  EXPECT_TRUE(turns.knows_nobody());
  turns.Suspect("a");
  turns.Forget(At(100'000));
  EXPECT_FALSE(turns.knows_nobody()) << "nobody has measured it yet";
}

// A sleeper that reports the thread that wakes it, and blocks there until it may continue.
class SlowSleeper : public SleepingClient {
 public:
  const std::string& tenant() const override { return tenant_; }
  void Wake(End) const override {
    entered_.set_value(std::this_thread::get_id());
    go_on_.get_future().wait();
  }
  std::thread::id EnteredBy() { return entered_.get_future().get(); }
  void GoOn() { go_on_.set_value(); }

 private:
  const std::string tenant_ = "slow";
  mutable std::promise<std::thread::id> entered_;
  mutable std::promise<void> go_on_;
};

class CountingSleeper : public FakeSleeper {
 public:
  using FakeSleeper::FakeSleeper;
  void Wake(End) const override { woken_by.push_back(std::this_thread::get_id()); }
  mutable std::vector<std::thread::id> woken_by;
};

TEST(Waker, ConnectionThatEnds_IsEndedByTheThread) {
  Waker waker;
  ASSERT_TRUE(waker.Start().ok());
  const auto slow = std::make_shared<SlowSleeper>();
  waker.End(slow, SleepingClient::End::kAll);  // does not wait
  EXPECT_NE(slow->EnteredBy(), std::this_thread::get_id());
  const auto other = std::make_shared<CountingSleeper>("other");
  waker.Wake(other);  // no other wake-up waits for the slow one
  EXPECT_EQ(other->woken_by, std::vector{std::this_thread::get_id()});
  slow->GoOn();
}

TEST(Waker, WhatWaitsAtTheEnd_IsSent) {
  const auto client = std::make_shared<CountingSleeper>("a");
  {
    Waker waker;
    ASSERT_TRUE(waker.Start().ok());
    waker.End(client, SleepingClient::End::kAll);
  }
  EXPECT_EQ(client->woken_by.size(), 1u);
}

}  // namespace
}  // namespace geminid::service
