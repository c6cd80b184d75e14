#include "geminid/async_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

using Values = std::vector<float>;

std::unique_ptr<AsyncCommunicator> Queue(Communicator& rank) {
  auto queue = AsyncCommunicator::Start(rank.Duplicate("queue").value());
  EXPECT_TRUE(queue.ok()) << queue.status();
  return *std::move(queue);
}

uint64_t CountOf(const AsyncCommunicator& queue, OpKind kind) {
  return queue.Stats().operations[static_cast<size_t>(kind)];
}

// Runs `body` on each of `ranks` ranks, with a queue, over every kind of memory between ranks.
template <typename Body>
void OnRanks(int ranks, const Body& body) {
  for (const Backend& backend : {LocalBackend(), ShmBackend()}) {
    SCOPED_TRACE(backend.name);
    Communicators world = backend.connect(ranks, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& rank) {
      const auto queue = Queue(rank);
      body(*queue, rank);
      EXPECT_EQ(rank.Barrier(), absl::OkStatus());  // no rank leaves before all are done
    });
  }
}

// A point in a stream that the test reaches when it opens the gate.
class Gate final : public Event {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool ready() const override {
    const std::lock_guard lock(mutex_);
    return open_;
  }
  bool WaitFor(absl::Duration /*timeout*/) const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    return true;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool open_ = false;
};

TEST(AsyncCommunicator, Operations_RunInTheOrderOfTheirCalls) {
  OnRanks(3, [](AsyncCommunicator& queue, Communicator& /*rank*/) {
    Values sum = {1.0f};
    std::vector<Pending> pending;
    for (int i = 0; i < 10; ++i) pending.push_back(queue.AllReduce(sum, sum));
    EXPECT_EQ(queue.Synchronize(), absl::OkStatus());
    for (const Pending& operation : pending) {
      EXPECT_TRUE(operation.ready());
      EXPECT_EQ(operation.Wait(), absl::OkStatus());
    }
    EXPECT_EQ(sum[0], 59049.0f);  // 3 to the power of 10
    EXPECT_EQ(CountOf(queue, OpKind::kAllReduce), 10u);
  });
}

// Compares each operation with the blocking one of its name, on the same numbers.
TEST(AsyncCommunicator, EveryOperation_HasTheResultsOfTheBlockingOne) {
  OnRanks(2, [](AsyncCommunicator& queue, Communicator& rank) {
    ASSERT_EQ(queue.Rank(), rank.Rank());
    ASSERT_EQ(queue.WorldSize(), 2);
    const int peer = 1 - rank.Rank();
    Values in(4);
    std::iota(in.begin(), in.end(), 10.0f * static_cast<float>(rank.Rank()));
    const ConstBuffer all = in, half = std::span<const float>(in).first(2);
    const auto expect_same = [](size_t elements, const auto& ahead, const auto& blocking) {
      Values found(elements, 7.0f), expected(elements, 7.0f);
      EXPECT_EQ(ahead(Buffer(found)).Wait(), absl::OkStatus());
      EXPECT_EQ(blocking(Buffer(expected)), absl::OkStatus());
      EXPECT_EQ(found, expected);
    };
    expect_same(
        8, [&](Buffer out) { return queue.AllGather(all, out); },
        [&](Buffer out) { return rank.AllGather(all, out); });
    expect_same(
        2, [&](Buffer out) { return queue.ReduceScatter(all, out, ReduceOp::kSum, {0.5}); },
        [&](Buffer out) { return rank.ReduceScatter(all, out, ReduceOp::kSum, {0.5}); });
    expect_same(
        4, [&](Buffer out) { return queue.AllReduce(all, out, ReduceOp::kMax); },
        [&](Buffer out) { return rank.AllReduce(all, out, ReduceOp::kMax); });
    expect_same(
        4, [&](Buffer out) { return queue.Broadcast(out, 1); },
        [&](Buffer out) { return rank.Broadcast(out, 1); });
    expect_same(
        4, [&](Buffer out) { return queue.Reduce(all, out, 1, ReduceOp::kMin); },
        [&](Buffer out) { return rank.Reduce(all, out, 1, ReduceOp::kMin); });
    expect_same(
        8, [&](Buffer out) { return queue.Gather(all, out, 0); },
        [&](Buffer out) { return rank.Gather(all, out, 0); });
    expect_same(
        4, [&](Buffer out) { return queue.AllToAll(all, out); },
        [&](Buffer out) { return rank.AllToAll(all, out); });
    expect_same(
        2, [&](Buffer out) { return queue.SendReceive(half, peer, out, peer, 5); },
        [&](Buffer out) { return rank.SendReceive(half, peer, out, peer, 5); });
    Values message(2);
    const Pending passed = rank.Rank() == 0 ? queue.Send(half, 1, 3) : queue.Receive(message, 0, 3);
    EXPECT_EQ(passed.Wait(), absl::OkStatus());
    if (rank.Rank() == 1) {
      EXPECT_EQ(message, (Values{0.0f, 1.0f}));
    }
    EXPECT_EQ(queue.Barrier().Wait(), absl::OkStatus());
  });
}

TEST(AsyncCommunicator, Call_ReturnsBeforeTheOthersCome) {
  OnRanks(2, [](AsyncCommunicator& queue, Communicator& rank) {
    Values sum = {2.0f};
    if (rank.Rank() == 1) {
      EXPECT_EQ(rank.Barrier(), absl::OkStatus());
    }
    const Pending done = queue.AllReduce(sum, sum);
    if (rank.Rank() == 0) {
      EXPECT_FALSE(done.ready());
      EXPECT_EQ(rank.Barrier(), absl::OkStatus());
    }
    EXPECT_EQ(done.Wait(), absl::OkStatus());
    EXPECT_EQ(sum[0], 4.0f);
  });
}

TEST(AsyncCommunicator, WhatWaitsForAnEvent_BeginsAfterIt) {
  OnRanks(2, [](AsyncCommunicator& queue, Communicator& /*rank*/) {
    const auto gate = std::make_shared<Gate>();
    Values sum = {0.0f};
    queue.WaitFor(gate);
    Pending done = queue.AllReduce(sum, sum);
    const std::shared_ptr<const Event> end = queue.Record();
    EXPECT_FALSE(done.ready());
    EXPECT_FALSE(end->ready());
    sum[0] = 1.0f;  // a stream could do the same
    gate->Open();
    end->Wait();
    EXPECT_TRUE(end->ready());
    EXPECT_TRUE(done.ready());
    EXPECT_EQ(sum[0], 2.0f);
  });
}

TEST(AsyncCommunicator, Callback_HasTheOutcomeOnce) {
  OnRanks(2, [](AsyncCommunicator& queue, Communicator& /*rank*/) {
    const auto gate = std::make_shared<Gate>();
    std::atomic<int> calls = 0;
    queue.WaitFor(gate);
    queue.Barrier().Then([&](const absl::Status& status) { calls += status.ok() ? 1 : 100; });
    EXPECT_EQ(calls, 0);
    gate->Open();
    EXPECT_EQ(queue.Synchronize(), absl::OkStatus());
    EXPECT_EQ(calls, 1);
  });
}

TEST(AsyncCommunicator, OperationsOfOnesOwn_KeepWhatTheyNeedUntilTheyAreDone) {
  OnRanks(2, [](AsyncCommunicator& queue, Communicator& /*rank*/) {
    auto kept = std::make_shared<Values>(Values{1.0f});
    const std::weak_ptr<Values> watched = kept;
    const auto gate = std::make_shared<Gate>();
    queue.WaitFor(gate);
    Pending done = queue.Run([kept = std::move(kept)](Communicator& ranks) {
      const absl::Status status = ranks.AllReduce(*kept, *kept);
      return status.ok() ? ranks.AllReduce(*kept, *kept) : status;
    });
    EXPECT_FALSE(watched.expired());
    gate->Open();
    EXPECT_EQ(done.Wait(), absl::OkStatus());
    EXPECT_TRUE(watched.expired());
    EXPECT_EQ(CountOf(queue, OpKind::kAllReduce), 2u);
  });
}

TEST(AsyncCommunicator, RefusedArguments_FailAlone) {
  OnRanks(2, [](AsyncCommunicator& queue, Communicator& /*rank*/) {
    Values in(2), out(3), sum = {1.0f};
    const Pending refused = queue.AllGather(in, out);
    const Pending done = queue.AllReduce(sum, sum);
    EXPECT_EQ(refused.Wait().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(done.Wait(), absl::OkStatus());
    EXPECT_EQ(queue.Synchronize(), absl::OkStatus());
  });
}

TEST(AsyncCommunicator, RanksThatDisagree_FailAllThatComesAfter) {
  OnRanks(2, [](AsyncCommunicator& queue, Communicator& rank) {
    Values values(rank.Rank() == 0 ? 2 : 3);
    const Pending wrong = queue.AllReduce(values, values);
    const Pending after = queue.Barrier();
    EXPECT_FALSE(wrong.Wait().ok());
    EXPECT_EQ(after.Wait(), wrong.Wait());
    EXPECT_EQ(queue.Synchronize(), wrong.Wait());
    EXPECT_EQ(queue.health(), wrong.Wait());
  });
}

TEST(AsyncCommunicator, Aborted_FailsWhatWaitsOnAllRanks) {
  OnRanks(2, [](AsyncCommunicator& queue, Communicator& rank) {
    Values values(1);
    const Pending waits = rank.Rank() == 0 ? queue.Receive(values, 1) : queue.Barrier();
    if (rank.Rank() == 0) queue.Abort("enough of it");
    EXPECT_EQ(waits.Wait().code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(waits.Wait().message()), testing::HasSubstr("enough of it"));
  });
}

// When the destructor returns, the buffers belong to the caller again.
TEST(AsyncCommunicator, LetGoOf_CompletesEverythingAndTellsTheOthers) {
  for (const Backend& backend : {LocalBackend(), ShmBackend()}) {
    SCOPED_TRACE(backend.name);
    Communicators world = backend.connect(2, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& rank) {
      auto queue = Queue(rank);
      Values values(1);
      std::vector<Pending> pending;
      for (int i = 0; i < 3; ++i) pending.push_back(queue->Receive(values, 1 - rank.Rank()));
      if (rank.Rank() == 0) queue.reset();
      for (const Pending& operation : pending) EXPECT_FALSE(operation.Wait().ok());
      if (rank.Rank() == 1) {
        EXPECT_EQ(queue->Barrier().Wait().code(), absl::StatusCode::kAborted);
      }
    });
  }
}

TEST(AsyncCommunicator, LetGoOfWhenAllIsDone_LeavesTheOthersAlone) {
  OnRanks(2, [](AsyncCommunicator& queue, Communicator& rank) {
    {
      auto second = AsyncCommunicator::Start(rank.Duplicate("second").value());
      ASSERT_TRUE(second.ok());
      EXPECT_EQ((*second)->Barrier().Wait(), absl::OkStatus());
    }
    EXPECT_EQ(queue.Barrier().Wait(), absl::OkStatus());
    EXPECT_EQ(rank.Barrier(), absl::OkStatus());
  });
}

// A rank whose own operations are complete may leave at once. Neither the progress of its queue's
// thread nor the other ranks' operations matter.
TEST(AsyncCommunicator, LetGoOfRightAfterItsLastOperation_AbortsNothing) {
  constexpr int kTimes = 100, kRanks = 4;
  Communicators world = LocalBackend().connect(kRanks, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    for (int i = 0; i < kTimes; ++i) {
      const auto queue = Queue(rank);
      const Values sent(1, static_cast<float>(i));
      Values received(1);
      const int next = (rank.Rank() + 1) % kRanks, previous = (rank.Rank() + kRanks - 1) % kRanks;
      ASSERT_EQ(queue->SendReceive(sent, next, received, previous).Wait(), absl::OkStatus()) << i;
      ASSERT_EQ(received, sent);
    }
  });
}

TEST(AsyncCommunicator, CallsOfSeveralThreads_AreAllMade) {
  Communicators world = LocalBackend().connect(1, absl::Seconds(60));
  const auto queue = Queue(*world[0]);
  std::atomic<int> runs = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        (void)queue->Run([&](Communicator&) {
          ++runs;
          return absl::OkStatus();
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(queue->Synchronize(), absl::OkStatus());
  EXPECT_EQ(runs, 400);
}

}  // namespace
}  // namespace geminid::collectives
