// Requests and tickets through shared memory.
#include "proto/shm/ring.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "proto/shm/chunk_state.h"
#include "proto/shm/lease.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::RawClient;
using ::geminid::testing::Receive;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr auto kPatience = std::chrono::seconds(20);
constexpr int kPatienceMilliseconds = 20000;

class Ring : public ::testing::Test {
 protected:
  using Responses = shm::RingReader<shm::Response, shm::kRingEntries>;
  using Requests = shm::RingWriter<shm::Request, shm::kRingEntries>;

  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    shm::ClientSegment* segment = client_->client();
    requests_ = std::make_unique<Requests>(segment->requests, &segment->cursor.requests_written,
                                           &client_->state()->cursor.requests_read);
    responses_ = std::make_unique<Responses>(client_->state()->responses,
                                             &client_->state()->cursor.responses_written,
                                             &segment->cursor.responses_read);
  }

  void Push(shm::Request request) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!requests_->TryPush(request)) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the daemon reads no requests";
      Wake();
    }
    Wake();
  }

  void Wake() {
    if (client_->state()->cursor.asleep.load() != 0) client_->Wake();
  }

  shm::Response Pop() {
    shm::Response response = {};
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      const Responses::Result result = responses_->TryPop(&response);
      if (result == Responses::Result::kEntry) return response;
      EXPECT_EQ(result, Responses::Result::kEmpty);
      std::this_thread::yield();
    }
    ADD_FAILURE() << "no response came";
    return response;
  }

  // One generic chunk of 1 MiB with a home, and an arena of 4 MiB.
  uint32_t AllocateGeneric() {
    v1::CreateArenaRequest arena;
    arena.set_bytes(4 * kMiB);
    v1::CreateArenaResponse arena_response;
    grpc::ClientContext arena_context;
    client_->Authenticate(&arena_context);
    EXPECT_TRUE(v1::SessionService::NewStub(client_->channel())
                    ->CreateArena(&arena_context, arena, &arena_response)
                    .ok());
    v1::AllocateChunksRequest request;
    v1::ChunkSpec* chunk = request.add_chunks();
    chunk->set_name("generic");
    chunk->set_kind(v1::CHUNK_KIND_GENERIC);
    chunk->set_bytes(kMiB);
    chunk->set_has_home(true);
    v1::AllocateChunksResponse response;
    grpc::ClientContext context;
    client_->Authenticate(&context);
    EXPECT_TRUE(
        v1::ChunkService::NewStub(client_->channel())->Allocate(&context, request, &response).ok());
    return response.chunk_size() == 1 ? response.chunk(0) : 0;
  }

  int Fd(shm::WelcomeFd which) const { return client_->fds()[static_cast<int>(which)].get(); }

  shm::StateWord StateOf(uint32_t chunk) const {
    return shm::StateWord::Decode(client_->state()->state[chunk].load());
  }

  DaemonEnv env_;
  std::unique_ptr<RawClient> client_;
  std::unique_ptr<Requests> requests_;
  std::unique_ptr<Responses> responses_;
};

TEST_F(Ring, Load_TicketCompletionResident_ThenDropIsRefusedWhileLeased) {
  const uint32_t chunk = AllocateGeneric();
  EXPECT_EQ(StateOf(chunk).residency, shm::Residency::kAbsent);
  shm::Request request = {};
  request.request_id = 1;
  request.op = shm::RequestOp::kTransition;
  request.source = request.destination = shm::ChunkId{chunk};
  request.argument = static_cast<uint64_t>(shm::ChunkState::kHold);
  Push(request);
  EXPECT_EQ(Pop().op, shm::ResponseOp::kDone);

  request = {};
  request.request_id = 2;
  request.op = shm::RequestOp::kTransfer;
  request.flags = shm::kAllocateDestination | shm::kPublishWhenDone;
  request.priority = shm::Priority::kNormal;
  request.cause = shm::TransferCause::kDemand;
  request.deadline_moment = 0xffff;
  request.source = request.destination = shm::ChunkId{chunk};
  request.bytes = kMiB;
  request.device_offset = shm::kAnyOffset;
  Push(request);
  const shm::Response ticket = Pop();
  ASSERT_EQ(ticket.op, shm::ResponseOp::kTicket)
      << shm::Name(static_cast<shm::ErrorReason>(ticket.error_code));
  EXPECT_EQ(ticket.request_id, 2u);
  EXPECT_EQ(ticket.direction, shm::Direction::kHostToDevice);
  EXPECT_EQ(ticket.bytes, kMiB);
  EXPECT_EQ(StateOf(chunk).residency, shm::Residency::kFilling);

  client_->client()->completion[ticket.completion_index].store(ticket.ticket);
  request = {};
  request.request_id = 3;
  request.op = shm::RequestOp::kTransferDone;
  request.argument = ticket.ticket;
  Push(request);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (StateOf(chunk).residency != shm::Residency::kResident) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }

  shm::StateWord held;
  ASSERT_TRUE(shm::TryAcquireLease<>(client_->state()->state[chunk],
                                     client_->client()->lease[chunk], &held));
  request = {};
  request.request_id = 4;
  request.op = shm::RequestOp::kDrop;
  request.source = request.destination = shm::ChunkId{chunk};
  Push(request);
  shm::Response response = Pop();
  EXPECT_EQ(response.op, shm::ResponseOp::kError);
  EXPECT_EQ(response.error_code, static_cast<uint8_t>(shm::ErrorReason::kLeased));
  shm::ReleaseLease(client_->client()->lease[chunk]);
  request.request_id = 5;
  Push(request);
  response = Pop();
  EXPECT_EQ(response.op, shm::ResponseOp::kDone);
  EXPECT_EQ(StateOf(chunk).residency, shm::Residency::kAbsent);
}

TEST_F(Ring, TenThousandRequests_AreAllAnsweredInOrder) {
  constexpr uint64_t kRequests = 10000;
  uint64_t answered = 0;
  std::thread reader([&] {
    for (; answered < kRequests; ++answered) {
      const shm::Response response = Pop();
      ASSERT_EQ(response.request_id, answered + 1);
      ASSERT_EQ(response.op, shm::ResponseOp::kError);
    }
  });
  for (uint64_t i = 0; i < kRequests; ++i) {
    shm::Request request = {};
    request.request_id = i + 1;
    request.op = shm::RequestOp::kDrop;
    request.source = request.destination = shm::ChunkId{12345};
    Push(request);
  }
  reader.join();
  EXPECT_EQ(answered, kRequests);
}

TEST_F(Ring, ClientThatDoesNotReadItsResponses_GetsThemAllLater) {
  // More requests than the response ring holds.
  constexpr uint64_t kRequests = 3 * shm::kRingEntries / 2;
  for (uint64_t i = 0; i < kRequests; ++i) {
    shm::Request request = {};
    request.request_id = i + 1;
    request.op = shm::RequestOp::kDrop;
    request.source = request.destination = shm::ChunkId{12345};
    Push(request);
  }
  for (uint64_t i = 0; i < kRequests; ++i) ASSERT_EQ(Pop().request_id, i + 1);
}

TEST_F(Ring, SleepingClient_IsWoken) {
  client_->client()->cursor.asleep.store(1);
  shm::Request request = {};
  request.request_id = 9;
  request.op = shm::RequestOp::kDrop;
  request.source = request.destination = shm::ChunkId{12345};
  Push(request);
  Pop();
  pollfd event = {Fd(shm::WelcomeFd::kClientEvent), POLLIN, 0};
  EXPECT_EQ(::poll(&event, 1, kPatienceMilliseconds), 1);
}

// Both sides hold the same descriptor, so each sees the flags that the other sets.
TEST_F(Ring, ClientThatMakesItsEventsBlockAndFillsThem_HangsNobody) {
  for (const shm::WelcomeFd which : {shm::WelcomeFd::kDaemonEvent, shm::WelcomeFd::kClientEvent}) {
    ASSERT_EQ(::fcntl(Fd(which), F_SETFL, 0), 0);
    const uint64_t most = ~uint64_t{0} - 1;
    // A socket raises no signal with MSG_NOSIGNAL. An eventfd is not a socket, so it is written.
    if (::send(Fd(which), &most, sizeof(most), MSG_NOSIGNAL) < 0 && errno == ENOTSOCK) {
      (void)!::write(Fd(which), &most, sizeof(most));
    }
  }
  client_->client()->cursor.asleep.store(1);
  shm::Request request = {};
  request.op = shm::RequestOp::kDrop;
  request.source = request.destination = shm::ChunkId{12345};
  ASSERT_TRUE(requests_->TryPush(request));
  EXPECT_TRUE(RawClient::Attach(env_.socket()).ok()) << "the daemon waits for a client";
  client_.reset();
  EXPECT_TRUE(RawClient::Attach(env_.socket()).ok()) << "the daemon waits for a dead client";
}

// The daemon's end accepts neither bytes nor descriptors, so it need not hold any.
TEST_F(Ring, ClientEvent_TakesNothingFromTheClient) {
  const int event = Fd(shm::WelcomeFd::kClientEvent);
  EXPECT_EQ(::send(event, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(Ring, RequestsOfASleepingDaemon_AreEachServedThoughTheEventIsNeverCleared) {
  for (uint64_t id = 1; id <= 1000; ++id) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (client_->state()->cursor.asleep.load() == 0) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::yield();
    }
    shm::Request request = {};
    request.request_id = id;
    request.op = shm::RequestOp::kDrop;
    request.source = request.destination = shm::ChunkId{12345};
    Push(request);
    ASSERT_EQ(Pop().request_id, id);
  }
}

TEST_F(Ring, ContradictoryRing_EndsTheSessionOnly) {
  absl::StatusOr<std::unique_ptr<RawClient>> other = RawClient::Attach(env_.socket());
  ASSERT_TRUE(other.ok());
  client_->client()->cursor.requests_written.store(1u << 30);
  client_->Wake();
  EXPECT_TRUE(Receive(client_->connection()).end);
  EXPECT_TRUE(RawClient::Attach(env_.socket()).ok());
  EXPECT_EQ((*other)->state()->header.phase.load(), static_cast<uint32_t>(shm::Phase::kServing));
}

TEST_F(Ring, FloodOfOneSession_DoesNotStarveAnother) {
  absl::StatusOr<std::unique_ptr<RawClient>> other = RawClient::Attach(env_.socket());
  ASSERT_TRUE(other.ok());
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    shm::Request request = {};
    request.op = shm::RequestOp::kBeginMoment;
    while (!stop.load()) {
      if (!requests_->TryPush(request)) std::this_thread::yield();
      Wake();
    }
  });
  shm::ClientSegment* segment = (*other)->client();
  Requests requests(segment->requests, &segment->cursor.requests_written,
                    &(*other)->state()->cursor.requests_read);
  Responses responses((*other)->state()->responses, &(*other)->state()->cursor.responses_written,
                      &segment->cursor.responses_read);
  for (uint64_t i = 1; i <= 100; ++i) {
    shm::Request request = {};
    request.request_id = i;
    request.op = shm::RequestOp::kDrop;
    request.source = request.destination = shm::ChunkId{1};
    ASSERT_TRUE(requests.TryPush(request));
    (*other)->Wake();
    shm::Response response;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (responses.TryPop(&response) != Responses::Result::kEntry) {
      if (std::chrono::steady_clock::now() > deadline) break;
      std::this_thread::yield();
    }
    EXPECT_EQ(response.request_id, i);
  }
  stop.store(true);
  flood.join();
}

}  // namespace
}  // namespace geminid::service
