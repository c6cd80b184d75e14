#include "daemon/service/tenants/fair_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace geminid::service {
namespace {

TEST(FairWorkers, TenantWithAFullQueue_LeavesAThreadToAnother) {
  absl::StatusOr<std::unique_ptr<FairWorkers>> workers = FairWorkers::Create(3, 2);
  ASSERT_TRUE(workers.ok()) << workers.status();
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> running{0};
  for (int i = 0; i < 100; ++i) {
    (*workers)->Submit("greedy", [&running, released] {
      ++running;
      released.wait();
    });
  }
  std::promise<int> seen;
  (*workers)->Submit("modest", [&] { seen.set_value(running.load()); });
  EXPECT_LE(seen.get_future().get(), 2);
  release.set_value();
  workers->reset();
  EXPECT_EQ(running.load(), 100) << "what was submitted is carried out";
}

TEST(FairWorkers, Tenants_TakeTurns) {
  absl::StatusOr<std::unique_ptr<FairWorkers>> workers = FairWorkers::Create(1, 1);
  ASSERT_TRUE(workers.ok());
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::string order;  // of the one thread's work
  (*workers)->Submit("c", [released] { released.wait(); });
  for (int i = 0; i < 3; ++i) (*workers)->Submit("a", [&] { order += 'a'; });
  for (int i = 0; i < 3; ++i) (*workers)->Submit("b", [&] { order += 'b'; });
  release.set_value();
  workers->reset();
  EXPECT_EQ(order, "ababab");
}

}  // namespace
}  // namespace geminid::service
