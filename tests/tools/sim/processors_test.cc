#include "tools/sim/processors.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace geminid::sim {
namespace {

constexpr double kTick = 4e-3;
constexpr double kRounding = 1e-8;

class ProcessorsTest : public ::testing::Test {
 protected:
  void Use(int count, double switch_seconds = 0) {
    processors_ = std::make_unique<Processors>(&events_, count, switch_seconds);
  }
  // Gives the thread work at a time, and remembers when it is done.
  size_t RunAt(double at, ThreadId thread, double seconds) {
    const size_t n = ends_.size();
    ends_.push_back(-1);
    events_.At(core::Time() + FromSeconds(at), [this, n, thread, seconds] {
      processors_->Run(thread, seconds, [this, n] { ends_[n] = events_.seconds(); });
    });
    return n;
  }
  void RunAll() {
    while (events_.RunNext()) {
    }
  }

  EventQueue events_;
  std::unique_ptr<Processors> processors_;
  std::vector<double> ends_;
};

TEST_F(ProcessorsTest, ThreadAlone_TakesItsTimePieceAfterPiece) {
  Use(1);
  const ThreadId thread = processors_->AddThread();
  RunAt(0.5, thread, 1);
  RunAt(0.5, thread, 2);
  RunAll();
  EXPECT_NEAR(ends_[0], 1.5, kRounding);
  EXPECT_NEAR(ends_[1], 3.5, kRounding);
  EXPECT_NEAR(processors_->BusySeconds(), 3, kRounding);
}

TEST_F(ProcessorsTest, ThreadsThatComputeOnOneProcessor_TakeTurnsOfATick) {
  constexpr int kThreads = 4;
  constexpr double kSeconds = 0.1;
  Use(1);
  for (int i = 0; i < kThreads; ++i) RunAt(0, processors_->AddThread(), kSeconds);
  RunAll();
  std::sort(ends_.begin(), ends_.end());
  // Each has had the same to within a turn, so all end in the last round.
  EXPECT_NEAR(ends_.back(), kThreads * kSeconds, kRounding);
  EXPECT_GE(ends_.front(), kThreads * (kSeconds - 2 * kTick));
  EXPECT_NEAR(ends_[1] - ends_[0], kTick, kRounding);
}

TEST_F(ProcessorsTest, TwoThreadsOnTwoProcessors_RunAtOnce) {
  Use(2);
  for (int i = 0; i < 2; ++i) RunAt(0, processors_->AddThread(), 0.05);
  RunAll();
  EXPECT_NEAR(ends_[0], 0.05, kRounding);
  EXPECT_NEAR(ends_[1], 0.05, kRounding);
}

TEST_F(ProcessorsTest, WokenThread_PreemptsTheOneThatComputes) {
  Use(1);
  RunAt(0, processors_->AddThread(), 0.1);
  RunAt(0.0105, processors_->AddThread(), 1e-5);
  RunAll();
  EXPECT_NEAR(ends_[1], 0.0105 + 1e-5, kRounding);
  EXPECT_NEAR(ends_[0], 0.1 + 1e-5, kRounding);
}

TEST_F(ProcessorsTest, WokenThreadThatHadMoreThanItsShare_WaitsForATick) {
  Use(1);
  const ThreadId busy = processors_->AddThread();
  const ThreadId other = processors_->AddThread();
  RunAt(0, busy, 0.1);
  RunAt(0.0101, other, 1e-3);
  RunAt(0.0115, other, 1e-5);  // 0.4 ms after it ended: still 0.6 ms ahead of the other
  RunAll();
  EXPECT_NEAR(ends_[1], 0.0111, kRounding);
  // At the tick of 12 ms the other has had 11.0 ms, and this one counts as having had 11.1.
  EXPECT_NEAR(ends_[2], 0.016 + 1e-5, kRounding);
}

TEST_F(ProcessorsTest, ProcessorWithoutThreads_TakesOneThatWaitsElsewhere) {
  Use(2);
  const ThreadId a = processors_->AddThread();
  const ThreadId b = processors_->AddThread();
  RunAt(0, a, 0.05);
  RunAt(0, b, 0.02);
  RunAt(0, processors_->AddThread(), 0.05);
  RunAll();
  // No processor is idle while a thread waits but for the cost of a migration, at most a tick.
  EXPECT_LE(*std::max_element(ends_.begin(), ends_.end()), 0.06 + kTick);
  EXPECT_NEAR(processors_->BusySeconds(), 0.12, kRounding);
}

TEST_F(ProcessorsTest, Switch_CostsTheIncomingThreadItsTime) {
  Use(1, 1e-4);
  RunAt(0, processors_->AddThread(), 0.1);
  RunAt(0.0105, processors_->AddThread(), 1e-3);
  RunAll();
  EXPECT_NEAR(ends_[1], 0.0105 + 1.1e-3, kRounding);
  EXPECT_NEAR(ends_[0], 0.1 + 1.2e-3, kRounding);
}

TEST_F(ProcessorsTest, WorkGivenWhileDone_GoesOnWithoutAPause) {
  Use(1);
  const ThreadId thread = processors_->AddThread();
  RunAt(0.001, processors_->AddThread(), 0.1);  // would have its turn if the first one slept
  double end = 0;
  events_.At(core::Time() + FromSeconds(0.002), [&] {
    processors_->Run(thread, 1e-4,
                     [&] { processors_->Run(thread, 1e-4, [&] { end = events_.seconds(); }); });
  });
  RunAll();
  EXPECT_NEAR(end, 0.0022, kRounding);
}

TEST_F(ProcessorsTest, CancelledWork_IsNotCalledAndFreesTheProcessor) {
  Use(1);
  const ThreadId a = processors_->AddThread();
  const ThreadId b = processors_->AddThread();
  bool called = false;
  const WorkId running = processors_->Run(a, 1, [&] { called = true; });
  RunAt(0, b, 0.1);
  events_.At(core::Time() + FromSeconds(0.05), [&] { processors_->Cancel(a, running); });
  RunAll();
  EXPECT_FALSE(called);
  EXPECT_GT(ends_[0], 0.1);
  EXPECT_LE(ends_[0], 0.1 + 0.05);
  EXPECT_NEAR(processors_->BusySeconds(), ends_[0], kRounding);
}

// Whatever comes: nothing is lost, and no processor is idle for more than a tick while one waits.
TEST_F(ProcessorsTest, ManyWakeUps_ConserveWorkAndRepeatExactly) {
  const auto run = [](std::vector<double>* ends) {
    EventQueue events;
    Processors processors(&events, 3);
    double given = 0;
    std::vector<ThreadId> threads;
    for (int i = 0; i < 8; ++i) threads.push_back(processors.AddThread());
    for (int i = 0; i < 2000; ++i) {
      const double seconds = 1e-5 * (1 + (i * i) % 97);
      given += seconds;
      events.At(core::Time() + FromSeconds(1e-4 * ((i * 7) % 1999)), [&, i, seconds] {
        processors.Run(threads[static_cast<size_t>(i % 8)], seconds,
                       [&] { ends->push_back(events.seconds()); });
      });
    }
    while (events.RunNext()) {
    }
    EXPECT_NEAR(processors.BusySeconds(), given, 1e-6);
  };
  std::vector<double> first, second;
  run(&first);
  run(&second);
  EXPECT_EQ(first.size(), 2000U);
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace geminid::sim
