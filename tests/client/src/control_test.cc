// Calls to a daemon that ends during the call. The servers are real, and the test sets their
// answers.
#include "client/src/control.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/unique_fd.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "proto/shm/attach_messages.h"
#include "tests/base/temporary_folder.h"

namespace geminid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Answers Free, the shortest call, with the result of a function. Allocates nothing.
class Server final : public v1::ChunkService::Service {
 public:
  using Answer = std::function<grpc::Status(grpc::ServerContext*, const v1::FreeChunksRequest&)>;

  Server(const std::string& socket, Answer answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Server() override { End(); }

  // Ends like a daemon that was told to stop, and aborts the calls in progress.
  void End() { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Free(grpc::ServerContext* context, const v1::FreeChunksRequest* request,
                    v1::FreeChunksResponse*) override {
    return answer_(context, *request);
  }
  grpc::Status Allocate(grpc::ServerContext* context, const v1::AllocateChunksRequest*,
                        v1::AllocateChunksResponse*) override {
    time_to_allocate = absl::FromChrono(context->deadline()) - absl::Now();
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "nothing is left"};
  }

  absl::Duration time_to_allocate;

 private:
  const Answer answer_;
  std::unique_ptr<grpc::Server> server_;
};

class ControlTest : public ::testing::Test {
 protected:
  ControlTest() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    ours_ = base::UniqueFd(ends[0]);
    daemons_ = base::UniqueFd(ends[1]);
  }
  void Connect(absl::Duration timeout = absl::Seconds(60), int local_ranks = 1) {
    control_ =
        std::make_unique<Control>(socket_, shm::Welcome{}, timeout, local_ranks, ours_.get());
  }
  absl::Status Free() { return control_->Free({}); }

  // An answer that waits until the call is aborted.
  Server::Answer IsCutOff() {
    return [this](grpc::ServerContext* context, const v1::FreeChunksRequest&) {
      entered_.store(true);
      while (!context->IsCancelled()) std::this_thread::yield();
      return grpc::Status::OK;
    };
  }
  void AwaitCall() const {
    while (!entered_.load()) std::this_thread::yield();
  }

  const base::TemporaryFolder folder_;
  const std::string socket_ = folder_.path() + "/daemon.sock";
  base::UniqueFd ours_;     // the client's end of the attach connection
  base::UniqueFd daemons_;  // the daemon's end, while it is stored
  std::atomic<bool> entered_ = false;
  std::unique_ptr<Control> control_;
};

TEST_F(ControlTest, CallThatAnEndingDaemonCutsOff_IsMadeAgainByNumber) {
  auto first = std::make_unique<Server>(socket_, IsCutOff());
  Connect();
  absl::Status status = absl::UnknownError("not yet");
  std::thread caller([&] { status = Free(); });
  AwaitCall();
  first.reset();
  std::atomic<bool> again = false;
  const Server second(socket_, [&](grpc::ServerContext*, const v1::FreeChunksRequest& request) {
    again.store(request.again());
    return grpc::Status::OK;
  });
  caller.join();
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_TRUE(again.load()) << "the earlier daemon may have done it";
}

// The connection broke, and a connection to the next daemon exists when the client looks.
TEST_F(ControlTest, UnavailableWithAConnection_IsAskedOnceMoreByNumber) {
  std::atomic<int> calls = 0;
  std::atomic<bool> again = false;
  const Server server(socket_, [&](grpc::ServerContext*, const v1::FreeChunksRequest& request) {
    again.store(request.again());
    return ++calls == 1 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "Broken pipe")
                        : grpc::Status::OK;
  });
  Connect();
  EXPECT_EQ(Free(), absl::OkStatus());
  EXPECT_EQ(calls.load(), 2);
  EXPECT_TRUE(again.load()) << "the earlier daemon may have done it";
}

TEST_F(ControlTest, CallThatIsNotAnswered_SaysWhoWasWaitedForAndHowLong) {
  const Server server(socket_, IsCutOff());
  Connect(absl::Milliseconds(50));
  const absl::Status status = Free();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(socket_), HasSubstr("did not answer within 50ms"),
                    HasSubstr("connect with a longer timeout")));
}

TEST_F(ControlTest, DeadlineOfTheDaemons_HasTheDaemonsWords) {
  const Server server(socket_, [](grpc::ServerContext*, const v1::FreeChunksRequest&) {
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "there was no room for an hour");
  });
  Connect();
  EXPECT_EQ(Free().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(Free().message()), HasSubstr("there was no room for an hour"));
}

// The other ranks of the node allocate at the same time.
TEST_F(ControlTest, Allocation_MayTakeLongerByItsSizeAndTheRanksBesideIt) {
  const Server server(socket_, IsCutOff());
  const auto time_for = [&](uint64_t bytes, int local_ranks) {
    Connect(absl::Seconds(100), local_ranks);
    EXPECT_FALSE(control_->Allocate({{"all", ChunkKind::kGeneric, bytes}}, false).ok());
    return server.time_to_allocate;
  };
  const absl::Duration least = time_for(4096, 1);
  const absl::Duration more = time_for(uint64_t{64} << 30, 1) - least;
  EXPECT_GT(more, absl::Seconds(64));
  const absl::Duration of_eight = time_for(uint64_t{64} << 30, 8) - least;
  EXPECT_NEAR(absl::FDivDuration(of_eight, more), 8, 0.5);
}

// The daemon cancels calls before it closes its connections.
TEST_F(ControlTest, CallThatADaemonAboutToEndRefusesAsCancelled_IsMadeAgain) {
  std::atomic<int> calls = 0;
  const Server server(socket_, [&](grpc::ServerContext*, const v1::FreeChunksRequest&) {
    if (calls.fetch_add(1) == 0) {
      return grpc::Status(grpc::StatusCode::CANCELLED, "the daemon is shutting down");
    }
    return grpc::Status::OK;
  });
  Connect();
  EXPECT_EQ(Free(), absl::OkStatus());
  EXPECT_EQ(calls.load(), 2);
}

TEST_F(ControlTest, CallOfASessionThatEndsWithItsDaemon_EndsToo) {
  auto server = std::make_unique<Server>(socket_, IsCutOff());
  Connect();
  absl::Status status;
  std::thread caller([&] { status = Free(); });
  AwaitCall();
  daemons_.Reset();  // the connection is not stored
  server.reset();
  caller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no other daemon took its place"));
}

// A next daemon without the session is not an error of permission.
TEST_F(ControlTest, SuccessorThatHasNotTheSession_IsUnavailable) {
  std::atomic<int> calls = 0;
  const Server server(socket_, [&](grpc::ServerContext*, const v1::FreeChunksRequest&) {
    return calls.fetch_add(1) == 0 ? grpc::Status(grpc::StatusCode::CANCELLED, "it ends")
                                   : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "who?");
  });
  Connect();
  const absl::Status status = Free();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not find this session"));
}

TEST_F(ControlTest, DaemonThatCutsOffEveryCall_IsNotAskedForEver) {
  const Server server(socket_, [](grpc::ServerContext*, const v1::FreeChunksRequest&) {
    return grpc::Status(grpc::StatusCode::CANCELLED, "not today");
  });
  Connect(absl::Seconds(2));
  const absl::Status status = Free();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not today"));
}

// UNAVAILABLE of a living daemon is final if it is marked as meant, or if it comes twice.
TEST_F(ControlTest, WhatALivingDaemonSays_IsMeant) {
  struct Said {
    grpc::StatusCode code;
    bool is_marked;
    int times;
  };
  for (const auto& [code, is_marked, times] :
       {Said{grpc::StatusCode::UNAVAILABLE, false, 2}, Said{grpc::StatusCode::UNAVAILABLE, true, 1},
        Said{grpc::StatusCode::ABORTED, false, 1}}) {
    std::atomic<int> calls = 0;
    const Server server(
        socket_, [&, said = code, mark = is_marked](grpc::ServerContext* context, const auto&) {
          calls.fetch_add(1);
          if (mark) context->AddTrailingMetadata(shm::kMeantMetadataKey, "1");
          return grpc::Status(said, "no");
        });
    Connect();
    EXPECT_EQ(static_cast<int>(Free().code()), static_cast<int>(code));
    EXPECT_EQ(calls.load(), times);
  }
}

}  // namespace
}  // namespace geminid
