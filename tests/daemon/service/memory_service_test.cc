// Tokens, pools and arenas over gRPC.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/mapping.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "geminid/v1/memory.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::RawClient;
using ::geminid::testing::RawMessage;
using ::geminid::testing::Receive;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class MemoryService : public ::testing::Test {
 protected:
  void SetUp() override {
    geminid::testing::DaemonEnvOptions options;
    options.host_memory = "64MiB";
    options.device_memory = "64MiB";
    ASSERT_TRUE(env_.Start(options).ok());
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  grpc::Status Allocate(const std::vector<uint64_t>& sizes, v1::AllocateChunksResponse* response,
                        bool has_home = true) {
    v1::AllocateChunksRequest request;
    for (const uint64_t bytes : sizes) {
      v1::ChunkSpec* chunk = request.add_chunks();
      chunk->set_name("chunk");
      chunk->set_kind(has_home ? v1::CHUNK_KIND_GENERIC : v1::CHUNK_KIND_GATHERED_WEIGHT);
      chunk->set_bytes(bytes);
      chunk->set_has_home(has_home);
    }
    grpc::ClientContext context;
    client_->Authenticate(&context);
    return v1::ChunkService::NewStub(client_->channel())->Allocate(&context, request, response);
  }

  grpc::Status Free(const std::vector<uint32_t>& chunks) {
    v1::FreeChunksRequest request;
    for (const uint32_t chunk : chunks) request.add_chunk(chunk);
    v1::FreeChunksResponse response;
    grpc::ClientContext context;
    client_->Authenticate(&context);
    return v1::ChunkService::NewStub(client_->channel())->Free(&context, request, &response);
  }

  grpc::Status CreateArena(uint64_t bytes, v1::CreateArenaResponse* response) {
    v1::CreateArenaRequest request;
    request.set_bytes(bytes);
    grpc::ClientContext context;
    client_->Authenticate(&context);
    return v1::SessionService::NewStub(client_->channel())
        ->CreateArena(&context, request, response);
  }

  v1::Ledger GetLedger() {
    v1::Ledger ledger;
    grpc::ClientContext context;
    const grpc::Status status = v1::MemoryService::NewStub(client_->channel())
                                    ->GetLedger(&context, v1::GetLedgerRequest(), &ledger);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(ledger.adds_up());
    return ledger;
  }

  v1::TierLedger Tier(v1::Tier tier) {
    const v1::Ledger ledger = GetLedger();
    for (const v1::TierLedger& line : ledger.tiers()) {
      if (line.tier() == tier) return line;
    }
    return {};
  }

  shm::Memory NextMemory(RawMessage* message) {
    *message = Receive(client_->connection());
    shm::Memory memory = {};
    EXPECT_EQ(message->bytes.size(), sizeof(memory));
    EXPECT_EQ(message->fds.size(), 1u);
    if (message->bytes.size() == sizeof(memory)) {
      std::memcpy(&memory, message->bytes.data(), sizeof(memory));
    }
    EXPECT_EQ(memory.magic, shm::kMemoryMagic);
    return memory;
  }

  DaemonEnv env_;
  std::unique_ptr<RawClient> client_;
};

TEST_F(MemoryService, Allocate_PassesOneExactSealedPool) {
  v1::AllocateChunksResponse response;
  const grpc::Status status = Allocate({100, 5 * kMiB + 3}, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  RawMessage message;
  const shm::Memory memory = NextMemory(&message);
  EXPECT_EQ(memory.type, shm::MemoryType::kHostPool);
  EXPECT_EQ(shm::Value(memory.pool), response.pool());
  EXPECT_EQ(memory.bytes, response.pool_bytes());
  // Two home copies aligned to 64 bytes, rounded up to whole pages.
  const uint64_t homes = 128 + (5 * kMiB + 3 + 63) / 64 * 64;
  EXPECT_EQ(memory.bytes, (homes + 4095) / 4096 * 4096);
  struct stat facts;
  ASSERT_EQ(::fstat(message.fds[0].get(), &facts), 0);
  EXPECT_EQ(static_cast<uint64_t>(facts.st_size), memory.bytes);
  EXPECT_EQ(::ftruncate(message.fds[0].get(), static_cast<off_t>(2 * memory.bytes)), -1);
  ASSERT_EQ(response.chunk_size(), 2);
  EXPECT_EQ(response.pool_offset(0) % 64, 0u);
  EXPECT_EQ(response.pool_offset(1) % 64, 0u);
  absl::StatusOr<base::Mapping> mapping = base::Mapping::Map(message.fds[0], memory.bytes);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(mapping->data()[memory.bytes - 1], std::byte{0});
  mapping->data()[memory.bytes - 1] = std::byte{1};
}

TEST_F(MemoryService, AllocateAndFree_LedgerFollows) {
  v1::AllocateChunksResponse response;
  ASSERT_TRUE(Allocate({kMiB, 100}, &response).ok());
  v1::TierLedger host = Tier(v1::TIER_HOST);
  EXPECT_EQ(host.in_use_bytes(), kMiB + 100);
  EXPECT_EQ(host.in_use_bytes() + host.reserved_bytes(), response.pool_bytes());
  EXPECT_EQ(host.free_bytes(), 64 * kMiB - response.pool_bytes());
  ASSERT_TRUE(Free({response.chunk(0)}).ok());
  ASSERT_TRUE(Free({response.chunk(1)}).ok());
  host = Tier(v1::TIER_HOST);
  EXPECT_EQ(host.in_use_bytes(), 0u);
  EXPECT_EQ(host.reserved_bytes(), 0u);
  EXPECT_EQ(host.peak_in_use_bytes(), kMiB + 100);
}

TEST_F(MemoryService, AllocateTooMuch_IsRefusedWithNumbersAndChangesNothing) {
  v1::AllocateChunksResponse response;
  const grpc::Status status = Allocate({65 * kMiB}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("64.0 MiB"));
  EXPECT_EQ(Tier(v1::TIER_HOST).free_bytes(), 64 * kMiB);
}

TEST_F(MemoryService, DeviceOnlyChunks_NeedNoPool) {
  v1::AllocateChunksResponse response;
  const grpc::Status status = Allocate({kMiB}, &response, false);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.pool(), 0u);
  EXPECT_EQ(response.pool_bytes(), 0u);
}

TEST_F(MemoryService, CreateArena_PassesItsSlabs) {
  v1::CreateArenaResponse response;
  const grpc::Status status = CreateArena(3 * kMiB + 1, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.bytes(), 3 * kMiB + 4096);
  EXPECT_EQ(response.slabs(), 1u);
  RawMessage message;
  const shm::Memory memory = NextMemory(&message);
  EXPECT_EQ(memory.type, shm::MemoryType::kDeviceSlab);
  EXPECT_EQ(memory.slab, 0u);
  EXPECT_EQ(memory.bytes, response.bytes());
  EXPECT_EQ(memory.arena_offset, 0u);
  EXPECT_EQ(Tier(v1::TIER_DEVICE).reserved_bytes(), response.bytes());
}

TEST_F(MemoryService, CreateArena_SecondOrTooLarge_IsRefused) {
  v1::CreateArenaResponse response;
  EXPECT_EQ(CreateArena(65 * kMiB, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(CreateArena(kMiB, &response).ok());
  EXPECT_FALSE(CreateArena(kMiB, &response).ok());
  EXPECT_EQ(Tier(v1::TIER_DEVICE).reserved_bytes(), kMiB);
}

TEST_F(MemoryService, CallsWithoutAGoodToken_AreRefused) {
  for (const std::string& token : {std::string(), std::string(64, 'a'), std::string("x")}) {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata(shm::kTokenMetadataKey, token);
    v1::AllocateChunksResponse response;
    const grpc::Status status = v1::ChunkService::NewStub(client_->channel())
                                    ->Allocate(&context, v1::AllocateChunksRequest(), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
}

TEST_F(MemoryService, Detach_FreesAtOnceAndEndsTheToken) {
  v1::AllocateChunksResponse allocated;
  ASSERT_TRUE(Allocate({kMiB}, &allocated).ok());
  const auto stub = v1::SessionService::NewStub(client_->channel());
  v1::DetachResponse response;
  {
    grpc::ClientContext context;
    client_->Authenticate(&context);
    ASSERT_TRUE(stub->Detach(&context, v1::DetachRequest(), &response).ok());
  }
  EXPECT_EQ(Tier(v1::TIER_HOST).free_bytes(), 64 * kMiB);
  grpc::ClientContext context;
  client_->Authenticate(&context);
  EXPECT_EQ(stub->Detach(&context, v1::DetachRequest(), &response).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

// The bytes that the kernel holds for the file of a descriptor that the client still has.
uint64_t BytesHeld(const RawMessage& message) {
  struct stat facts = {};
  EXPECT_EQ(::fstat(message.fds[0].get(), &facts), 0);
  return static_cast<uint64_t>(facts.st_blocks) * 512;
}

TEST_F(MemoryService, FreedPool_CannotBeKeptByItsClient) {
  v1::AllocateChunksResponse response;
  ASSERT_TRUE(Allocate({kMiB}, &response).ok());
  RawMessage message;
  NextMemory(&message);
  absl::StatusOr<base::Mapping> mapping = base::Mapping::Map(message.fds[0], kMiB);
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(BytesHeld(message), kMiB);
  ASSERT_TRUE(Free({response.chunk(0)}).ok());
  EXPECT_EQ(Tier(v1::TIER_HOST).free_bytes(), 64 * kMiB);
  EXPECT_EQ(BytesHeld(message), 0u);
  EXPECT_EQ(::pwrite(message.fds[0].get(), "x", 1, 0), -1);
  EXPECT_NE(::posix_fallocate(message.fds[0].get(), 0, kMiB), 0);
  EXPECT_EQ(BytesHeld(message), 0u);
}

TEST_F(MemoryService, DetachedSession_KeepsNothingThatItHadNotReceived) {
  v1::AllocateChunksResponse allocated;
  ASSERT_TRUE(Allocate({kMiB}, &allocated).ok());
  v1::CreateArenaResponse arena;
  ASSERT_TRUE(CreateArena(kMiB, &arena).ok());
  {
    grpc::ClientContext context;
    client_->Authenticate(&context);
    v1::DetachResponse response;
    ASSERT_TRUE(v1::SessionService::NewStub(client_->channel())
                    ->Detach(&context, v1::DetachRequest(), &response)
                    .ok());
  }
  EXPECT_EQ(Tier(v1::TIER_DEVICE).free_bytes(), 64 * kMiB);
  for (int i = 0; i < 2; ++i) {
    RawMessage message;
    NextMemory(&message);
    ASSERT_EQ(message.fds.size(), 1u);
    EXPECT_EQ(BytesHeld(message), 0u);
  }
}

// Numbers of chunks are easy to guess.
TEST_F(MemoryService, FreeDuringAllocate_NeverFreesWhatIsNotYetThere) {
  std::atomic<bool> done{false};
  std::thread freer([&] {
    while (!done.load()) Free({0});
  });
  for (int i = 0; i < 20; ++i) {
    v1::AllocateChunksResponse response;
    ASSERT_TRUE(Allocate({16 * kMiB}, &response).ok());
    RawMessage message;
    NextMemory(&message);
    // In every order the ledger shows the bytes that the kernel holds.
    while (Tier(v1::TIER_HOST).free_bytes() != 64 * kMiB) std::this_thread::yield();
    EXPECT_EQ(BytesHeld(message), 0u) << i;
  }
  done.store(true);
  freer.join();
}

TEST_F(MemoryService, UnknownKind_IsRefused) {
  v1::AllocateChunksRequest request;
  v1::ChunkSpec* chunk = request.add_chunks();
  chunk->set_bytes(1);
  chunk->set_has_home(true);
  chunk->set_kind(static_cast<v1::ChunkKind>(99));
  grpc::ClientContext context;
  client_->Authenticate(&context);
  v1::AllocateChunksResponse response;
  EXPECT_EQ(v1::ChunkService::NewStub(client_->channel())
                ->Allocate(&context, request, &response)
                .error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace geminid::service
