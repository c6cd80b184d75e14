// What one client may ask of the control plane, and what its calls cost the others.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "daemon/service/calls/client_services.h"
#include "daemon/service/calls/tenant_calls.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/memory.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::NewChannel;
using ::geminid::testing::RawClient;
using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(20);
constexpr auto kSoon = std::chrono::seconds(1);

// A call of any method, whose messages are bytes and need not arrive.
class BareCall {
 public:
  BareCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& path)
      : stub_(channel) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
    stream_ = stub_.PrepareCall(&context_, path, &queue_);
    stream_->StartCall(nullptr);
    Next();
  }
  ~BareCall() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  void Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    stream_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    Next();
  }
  std::string Read() {
    grpc::ByteBuffer buffer;
    stream_->Read(&buffer, nullptr);
    Next();
    grpc::Slice slice;
    if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
    return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  // The status, once every answer is read.
  grpc::Status Finish() {
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    Next();
    return status;
  }

 private:
  void Next() {
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

class ControlLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  grpc::Status Allocate(const v1::AllocateChunksRequest& request, bool with_token,
                        grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
    grpc::ClientContext context;
    if (with_token) client_->Authenticate(&context);
    context.set_compression_algorithm(compression);
    v1::AllocateChunksResponse response;
    return v1::ChunkService::NewStub(client_->channel())->Allocate(&context, request, &response);
  }

  // The least time of several tries; stops at the first short one. A caller that queues behind
  // others waits every time. A caller that only waits for a processor of a busy machine does not.
  static std::chrono::nanoseconds TimeOf(const std::function<void()>& what) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::chrono::nanoseconds least = kPatience;
    while (least >= kSoon && std::chrono::steady_clock::now() < deadline) {
      const auto begin = std::chrono::steady_clock::now();
      what();
      least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - begin);
    }
    return least;
  }

  std::chrono::nanoseconds TimeOfAttach() {
    return TimeOf([this] { EXPECT_TRUE(RawClient::Attach(env_.socket()).ok()); });
  }

  grpc::Status GetStatus(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    v1::Status status;
    return v1::AdminService::NewStub(channel)->GetStatus(&context, v1::GetStatusRequest(), &status);
  }

  DaemonEnv env_;
  std::unique_ptr<RawClient> client_;
};

TEST_F(ControlLimits, CompressedRequest_IsRefused) {
  v1::AllocateChunksRequest request;
  request.add_chunks()->set_name(std::string(100, 'a'));
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const grpc::Status status = Allocate(request, true, algorithm);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  }
}

TEST_F(ControlLimits, RequestWithoutAToken_IsRefusedWithoutBeingRead) {
  // The message never arrives, so a daemon that reads first would wait.
  BareCall call(client_->channel(), "/geminid.v1.ChunkService/Allocate");
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(ControlLimits, MoreItemsThanAMethodTakes_AreRefusedBeforeTheyAreMade) {
  v1::AllocateChunksRequest request;
  for (uint64_t i = 0; i <= kAllocateBounds.items; ++i) request.add_chunks();
  const grpc::Status status = Allocate(request, true);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("more than 131072 items"));
}

TEST_F(ControlLimits, LongerRequestThanAMethodTakes_IsRefusedWithItsLimit) {
  BareCall call(client_->channel(), "/geminid.v1.AdminService/GetStatus");
  call.Send(std::string(100'000, 'x'));
  const grpc::Status status = call.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("100000 bytes; 4096 are allowed"));
}

TEST_F(ControlLimits, BytesThatAreNoMessage_AreRefused) {
  BareCall call(client_->channel(), "/geminid.v1.AdminService/ListChunks");
  call.Send("\x0a\xff\xff\xff\xff\x07 and so on");
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ControlLimits, UnknownMethod_IsUnimplemented) {
  BareCall call(client_->channel(), "/geminid.v1.AdminService/Rule");
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ControlLimits, CallsWhoseRequestsNeverCome_AreCountedAndHoldNoThread) {
  std::vector<std::unique_ptr<BareCall>> hanging;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (size_t i = 0; i < config::TenantShares().calls; ++i) {
    // Each connection has a few calls: as many as one connection may have at once.
    if (i % 8 == 0) channels.push_back(NewChannel(env_.socket()));
    hanging.push_back(
        std::make_unique<BareCall>(channels.back(), "/geminid.v1.MemoryService/GetLedger"));
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  grpc::Status status;
  do {
    status = GetStatus(client_->channel());
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "256 calls hang, and are not counted";
  } while (status.ok());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("256 calls in progress, as many as a tenant may"));
  EXPECT_LT(TimeOfAttach(), kSoon);
  hanging.clear();
  const auto ended_by = std::chrono::steady_clock::now() + kPatience;
  while (!(status = GetStatus(client_->channel())).ok()) {
    ASSERT_LT(std::chrono::steady_clock::now(), ended_by) << status.error_message();
  }
}

// Sixty such loops used to make an attach take seven seconds.
TEST_F(ControlLimits, ListingLoops_DoNotKeepOthersWaiting) {
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0};
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> loops;
  for (int i = 0; i < 16; ++i) {
    loops.emplace_back([&] {
      const auto admin = v1::AdminService::NewStub(NewChannel(env_.socket()));
      while (!stop.load()) {
        grpc::ClientContext context;
        v1::ListChunksResponse response;
        if (admin->ListChunks(&context, v1::ListChunksRequest(), &response).ok()) ++answered;
      }
    });
  }
  const double rate = config::TenantShares().listings_per_second;
  const double burst = rate * config::kCallBurstSeconds;
  while (answered.load() < static_cast<int>(burst) + 20) {
    ASSERT_LT(std::chrono::steady_clock::now() - begin, kPatience);
    std::this_thread::yield();
  }
  // The burst is over, so further calls are limited to the rate.
  EXPECT_LT(TimeOfAttach(), kSoon);
  stop.store(true);
  for (std::thread& loop : loops) loop.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LE(answered.load(), burst + rate * seconds + 1);
}

TEST_F(ControlLimits, ClientThatReadsNothing_IsRefusedAtOnceAndAlone) {
  grpc::Status status;
  int pools = 0;
  v1::AllocateChunksRequest request;
  v1::ChunkSpec* chunk = request.add_chunks();
  chunk->set_bytes(1);
  chunk->set_kind(v1::CHUNK_KIND_GENERIC);
  chunk->set_has_home(true);
  while (pools < 5000 && (status = Allocate(request, true)).ok()) ++pools;
  EXPECT_FALSE(status.ok()) << pools << " descriptors wait for a client that reads none";
  EXPECT_LT(TimeOf([&] { EXPECT_FALSE(Allocate(request, true).ok()); }), kSoon);
  EXPECT_LT(TimeOfAttach(), kSoon);
}

TEST_F(ControlLimits, Health_IsAnsweredWithoutASession) {
  BareCall call(NewChannel(env_.socket()), "/grpc.health.v1.Health/Check");
  call.Send("");
  EXPECT_EQ(call.Read(), "\x08\x01");  // status: SERVING
  EXPECT_TRUE(call.Finish().ok());
}

}  // namespace
}  // namespace geminid::service
