#include "client/src/request_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/src/wire.h"
#include "tests/client/src/fake_daemon.h"

namespace geminid {
namespace {

using testing::DoneFor;
using testing::ErrorFor;
using testing::FakeDaemon;
using ::testing::HasSubstr;

// Collects answers as they arrive.
class Answers {
 public:
  RequestPort::Handler Next() {
    return [this](const Answer& answer) {
      const std::lock_guard lock(mutex_);
      answers_.push_back(answer);
      changed_.notify_all();
    };
  }
  std::vector<Answer> Wait(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_.size() >= count; });
    return answers_;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return answers_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Answer> answers_;
};

shm::Request Drop(uint32_t chunk) {
  shm::Request request = MakeRequest(shm::RequestOp::kDrop);
  request.destination = shm::ChunkId{chunk};
  return request;
}

TEST(RequestPort, Request_GetsItsAnswer) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request& request) {
    shm::Response response = DoneFor(request);
    response.device_offset = 4096 * shm::Index(request.destination);
    return std::optional(response);
  });
  const auto port = daemon.MakePort();
  port->Submit(Drop(7), answers.Next());
  const Answer answer = answers.Wait(1)[0];
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.response.device_offset, 7u * 4096);
}

TEST(RequestPort, Refusal_CarriesCodeReasonAndWords) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request& request) {
    return std::optional(
        ErrorFor(request, absl::StatusCode::kFailedPrecondition, shm::ErrorReason::kLeased));
  });
  const auto port = daemon.MakePort();
  port->Submit(Drop(1), answers.Next());
  const Answer answer = answers.Wait(1)[0];
  EXPECT_TRUE(absl::IsFailedPrecondition(answer.status));
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("leased"));
  EXPECT_EQ(answer.response.error_code, static_cast<uint8_t>(shm::ErrorReason::kLeased));
  EXPECT_TRUE(port->status().ok());
}

TEST(RequestPort, ManyTimesTheRing_IsAnsweredInOrderWithoutBlocking) {
  constexpr uint32_t kRequests = 10 * shm::kRingEntries;
  Answers answers;
  FakeDaemon daemon([](const shm::Request& request) { return std::optional(DoneFor(request)); });
  const auto port = daemon.MakePort();
  daemon.Hold(true);
  for (uint32_t i = 0; i < kRequests; ++i) port->Submit(Drop(i), answers.Next());
  daemon.Hold(false);
  const std::vector<Answer> all = answers.Wait(kRequests);
  for (uint32_t i = 1; i < kRequests; ++i) {
    ASSERT_GT(all[i].response.request_id, all[i - 1].response.request_id);
  }
  const std::vector<shm::Request> seen = daemon.Seen();
  ASSERT_EQ(seen.size(), kRequests);
  for (uint32_t i = 0; i < kRequests; ++i) ASSERT_EQ(shm::Index(seen[i].destination), i);
}

// A notice that returns credits must never wait behind requests that need credits.
TEST(RequestPort, UrgentNotice_OvertakesRequestsThatWaitForAnswers) {
  Answers answers;
  std::atomic<bool> noticed = false;
  std::mutex mutex;
  std::vector<shm::Request> unanswered;
  FakeDaemon daemon([&](const shm::Request& request) -> std::optional<shm::Response> {
    if (request.op == shm::RequestOp::kTransferDone) noticed.store(true);
    const std::lock_guard lock(mutex);
    unanswered.push_back(request);
    return std::nullopt;
  });
  const auto port = daemon.MakePort();
  constexpr uint32_t kRequests = 2 * shm::kRingEntries;
  for (uint32_t i = 0; i < kRequests; ++i) port->Submit(Drop(i), answers.Next());
  port->PostUrgent(MakeRequest(shm::RequestOp::kTransferDone));
  while (!noticed.load()) std::this_thread::yield();
  const std::lock_guard lock(mutex);
  EXPECT_LT(unanswered.size(), kRequests);
}

TEST(RequestPort, SeveralThreads_EachGetAllTheirAnswers) {
  FakeDaemon daemon([](const shm::Request& request) { return std::optional(DoneFor(request)); });
  const auto port = daemon.MakePort();
  constexpr int kThreads = 3;
  constexpr int kRequests = 3000;
  std::vector<Answers> answers(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRequests; ++i) port->Submit(Drop(0), answers[t].Next());
      answers[t].Wait(kRequests);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Answers& of_thread : answers) EXPECT_EQ(of_thread.size(), size_t{kRequests});
}

TEST(RequestPort, EndOfTheDaemon_FailsWhatWaitsAndWhatComes) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request&) { return std::optional<shm::Response>(); });
  const auto port = daemon.MakePort();
  for (int i = 0; i < 5; ++i) port->Submit(Drop(0), answers.Next());
  daemon.End();
  for (const Answer& answer : answers.Wait(5)) {
    EXPECT_TRUE(absl::IsUnavailable(answer.status));
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr("/test/socket ended"));
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr("leases still work"));
  }
  port->Submit(Drop(0), answers.Next());
  EXPECT_TRUE(absl::IsUnavailable(answers.Wait(6)[5].status));
  EXPECT_TRUE(absl::IsUnavailable(port->status()));
}

TEST(RequestPort, AnswersWrittenBeforeTheEnd_StillCount) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request& request) { return std::optional(DoneFor(request)); });
  const auto port = daemon.MakePort();
  for (int i = 0; i < 100; ++i) port->Submit(Drop(0), answers.Next());
  while (daemon.Seen().size() < 100) std::this_thread::yield();
  daemon.End();
  size_t good = 0;
  for (const Answer& answer : answers.Wait(100)) good += answer.status.ok() ? 1 : 0;
  // The fake may have stopped before it wrote the last answers. No answer is lost or comes twice.
  EXPECT_EQ(answers.size(), 100u);
  EXPECT_GT(good, 0u);
}

TEST(RequestPort, ContradictoryRing_BreaksThePortInWords) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request&) { return std::optional<shm::Response>(); });
  const auto port = daemon.MakePort();
  port->Submit(Drop(0), answers.Next());
  daemon.Corrupt();
  const Answer answer = answers.Wait(1)[0];
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("response ring"));
}

TEST(RequestPort, RefusedNotice_ShowsInTheStatus) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request& request) {
    if (request.op == shm::RequestOp::kDrop) return std::optional(DoneFor(request));
    return std::optional(
        ErrorFor(request, absl::StatusCode::kNotFound, shm::ErrorReason::kUnknownTicket));
  });
  const auto port = daemon.MakePort();
  port->PostUrgent(MakeRequest(shm::RequestOp::kTransferDone));
  port->Submit(Drop(0), answers.Next());
  EXPECT_TRUE(answers.Wait(1)[0].status.ok());
  EXPECT_THAT(std::string(port->status().message()), HasSubstr("no such ticket"));
}

TEST(RequestPort, Stop_CompletesEverythingExactlyOnce) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request&) { return std::optional<shm::Response>(); });
  const auto port = daemon.MakePort();
  for (int i = 0; i < 3000; ++i) port->Submit(Drop(0), answers.Next());
  port->Stop(absl::CancelledError("over"));
  EXPECT_EQ(answers.size(), 3000u);
  port->Submit(Drop(0), answers.Next());
  EXPECT_EQ(answers.Wait(3001)[3000].status, absl::CancelledError("over"));
}

TEST(RequestPort, Callbacks_RunInOrderAndMayRequestMore) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request& request) { return std::optional(DoneFor(request)); });
  const auto port = daemon.MakePort();
  std::atomic<int> depth = 0;
  std::function<void(const Answer&)> again = [&](const Answer&) {
    if (++depth < 1000) port->Submit(Drop(0), again);
    if (depth == 1000) answers.Next()(Answer{});
  };
  port->Submit(Drop(0), again);
  answers.Wait(1);
  EXPECT_EQ(depth.load(), 1000);
}

TEST(RequestPort, ResponseToNobody_IsIgnored) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request& request) { return std::optional(DoneFor(request)); });
  const auto port = daemon.MakePort();
  shm::Response stray = {};
  stray.request_id = 1 << 20;
  stray.op = shm::ResponseOp::kDone;
  daemon.Push(stray);
  port->Submit(Drop(0), answers.Next());
  EXPECT_TRUE(answers.Wait(1)[0].status.ok());
  EXPECT_TRUE(port->status().ok());
}

// A daemon may die after it wrote an answer and before it recorded this. Then the next daemon
// answers again, and the request may no longer be possible.
TEST(RequestPort, AnswerThatComesAgain_IsHeardOnce) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request& request) { return std::optional(DoneFor(request)); });
  const auto port = daemon.MakePort();
  port->Submit(Drop(0), answers.Next());
  answers.Wait(1);
  shm::Request first = Drop(0);
  first.request_id = 1;
  daemon.Push(
      ErrorFor(first, absl::StatusCode::kFailedPrecondition, shm::ErrorReason::kNotResident));
  port->Submit(Drop(0), answers.Next());
  EXPECT_TRUE(answers.Wait(2)[1].status.ok());
  EXPECT_TRUE(port->status().ok());
}

TEST(RequestPort, Heartbeat_MovesWithTheThread) {
  Answers answers;
  FakeDaemon daemon([](const shm::Request& request) { return std::optional(DoneFor(request)); });
  const auto port = daemon.MakePort();
  const uint64_t before = daemon.client().counters.heartbeat.load();
  port->Submit(Drop(0), answers.Next());
  answers.Wait(1);
  EXPECT_GT(daemon.client().counters.heartbeat.load(), before);
}

}  // namespace
}  // namespace geminid
