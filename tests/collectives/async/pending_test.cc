#include "geminid/pending.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/async/pending_state.h"

namespace geminid {
namespace {

// Holds calls until the test makes them.
class HeldExecutor final : public Executor {
 public:
  void Run(std::function<void()> call) override { calls.push_back(std::move(call)); }
  std::vector<std::function<void()>> calls;
};

TEST(Pending, Default_IsComplete) {
  const Pending pending;
  EXPECT_TRUE(pending.ready());
  EXPECT_TRUE(pending.Wait().ok());
}

TEST(Pending, OfAStatus_HasThatStatus) {
  Pending pending(absl::NotFoundError("x"));
  EXPECT_TRUE(pending.ready());
  EXPECT_EQ(pending.Wait(), absl::NotFoundError("x"));
  absl::Status seen;
  pending.Then([&](const absl::Status& status) { seen = status; });
  EXPECT_EQ(seen, absl::NotFoundError("x"));
}

TEST(Pending, Wait_EndsAtItsDeadlineAndMayBeRepeated) {
  HeldExecutor executor;
  const auto state = std::make_shared<Pending::State>(&executor);
  const Pending pending(state);
  EXPECT_FALSE(pending.ready());
  EXPECT_TRUE(absl::IsDeadlineExceeded(pending.Wait(absl::Milliseconds(1))));
  std::thread other([&] { state->Complete(absl::OkStatus()); });
  EXPECT_TRUE(pending.Wait().ok());
  EXPECT_TRUE(pending.Wait().ok());
  other.join();
}

TEST(Pending, Callback_RunsOnceOnTheExecutor) {
  HeldExecutor executor;
  const auto state = std::make_shared<Pending::State>(&executor);
  int calls = 0;
  {
    Pending pending(state);
    pending.Then([&](const absl::Status& status) { calls += status.ok() ? 1 : 100; });
  }  // dropped: the request continues
  state->Complete(absl::OkStatus());
  EXPECT_EQ(calls, 0);
  ASSERT_EQ(executor.calls.size(), 1u);
  executor.calls[0]();
  EXPECT_EQ(calls, 1);
}

TEST(Pending, OutlivesItsExecutorOnceComplete) {
  Pending pending;
  {
    HeldExecutor executor;
    const auto state = std::make_shared<Pending::State>(&executor);
    pending = Pending(state);
    state->Complete(absl::CancelledError("over"));
  }
  bool called = false;
  pending.Then([&](const absl::Status&) { called = true; });
  EXPECT_TRUE(called);
  EXPECT_TRUE(absl::IsCancelled(pending.Wait()));
}

}  // namespace
}  // namespace geminid
