#include "daemon/agent/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

namespace geminid::agent {
namespace {

using ::testing::HasSubstr;

constexpr char kUuid[] = "GPU-f81d4fae-7dec-11d0-a765-00a0c91e6bf6";

template <typename Message>
std::span<const std::byte> Bytes(const Message& message) {
  return std::as_bytes(std::span(&message, 1));
}

std::string RequestError(const Request& request) {
  return std::string(ReadRequest(Bytes(request)).status().message());
}

std::string ReplyError(const Reply& reply, size_t descriptors = 0) {
  return std::string(ReadReply(Bytes(reply), descriptors).status().message());
}

Reply Hello() {
  Reply reply = MakeReply(ReplyType::kHello, 0);
  SetText(kUuid, reply.gpu.uuid);
  SetText("00000000:3B:00.0", reply.gpu.pci);
  SetText("NVIDIA H200", reply.gpu.name);
  reply.gpu.numa_node = 1;
  reply.gpu.total_bytes = uint64_t{139} << 30;
  reply.gpu.free_bytes = uint64_t{138} << 30;
  reply.gpu.granularity_bytes = 2 << 20;
  return reply;
}

// The error of a Hello after `change`.
std::string HelloError(const std::function<void(GpuFacts*)>& change) {
  Reply reply = Hello();
  change(&reply.gpu);
  return ReplyError(reply);
}

TEST(AgentMessages, GoodRequests_AreReadAsTheyWereMade) {
  for (const Request& request :
       {MakeRequest(RequestType::kCreate, 1, 0, 2 << 20), MakeRequest(RequestType::kScrub, 2, 7, 0),
        MakeRequest(RequestType::kRelease, 3, 7, 0), MakeRequest(RequestType::kHealth, 4, 0, 0)}) {
    const absl::StatusOr<Request> read = ReadRequest(Bytes(request));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(std::memcmp(&*read, &request, sizeof(request)), 0);
  }
}

TEST(AgentMessages, WrongRequests_AreRefusedFieldByField) {
  EXPECT_THAT(RequestError(MakeRequest(RequestType::kNone, 1, 0, 0)), HasSubstr("unknown type 0"));
  EXPECT_THAT(RequestError(MakeRequest(RequestType{9}, 1, 0, 0)), HasSubstr("unknown type 9"));
  EXPECT_THAT(RequestError(MakeRequest(RequestType::kHealth, 0, 0, 0)), HasSubstr("number"));
  EXPECT_THAT(RequestError(MakeRequest(RequestType::kCreate, 1, 0, 0)), HasSubstr("0 bytes"));
  EXPECT_THAT(RequestError(MakeRequest(RequestType::kCreate, 1, 0, kMaxGpuBytes + 1)),
              HasSubstr("bytes"));
  EXPECT_THAT(RequestError(MakeRequest(RequestType::kCreate, 1, 7, 4096)), HasSubstr("slab 7"));
  EXPECT_THAT(RequestError(MakeRequest(RequestType::kScrub, 1, 0, 0)), HasSubstr("slab 0"));
  EXPECT_THAT(RequestError(MakeRequest(RequestType::kRelease, 1, 7, 4096)), HasSubstr("bytes"));
}

TEST(AgentMessages, GoodReplies_AreReadWithTheirDescriptors) {
  const absl::StatusOr<Reply> hello = ReadReply(Bytes(Hello()), 0);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_STREQ(hello->gpu.uuid, kUuid);
  Reply created = MakeReply(ReplyType::kCreated, 5);
  created.slab = 7;
  EXPECT_TRUE(ReadReply(Bytes(created), 1).ok());
  EXPECT_TRUE(ReadReply(Bytes(MakeReply(ReplyType::kReleased, 5)), 0).ok());
  Reply health = MakeReply(ReplyType::kHealthy, 6);
  health.health.total_bytes = 10;
  health.health.free_bytes = 4;
  health.health.slabs = 1;
  health.health.slab_bytes = 6;
  EXPECT_TRUE(ReadReply(Bytes(health), 0).ok());
  health.health.faults.known = kAllKnown;
  health.health.faults.xids = 1;
  health.health.faults.xid[0] = 79;
  EXPECT_TRUE(ReadReply(Bytes(health), 0).ok());
}

TEST(AgentMessages, FaultsThatCannotBe_AreRefused) {
  const auto error = [](const std::function<void(Faults*)>& change) {
    Reply reply = MakeReply(ReplyType::kHealthy, 6);
    reply.health.total_bytes = 10;
    change(&reply.health.faults);
    return ReplyError(reply);
  };
  EXPECT_EQ(error([](Faults*) {}), "");
  EXPECT_THAT(error([](Faults* faults) { faults->known = kAllKnown + 1; }),
              HasSubstr("contradicts"));
  EXPECT_THAT(error([](Faults* faults) { faults->retired_pages_pending = 2; }),
              HasSubstr("contradicts"));
  EXPECT_THAT(error([](Faults* faults) { faults->row_remap_pending = 2; }),
              HasSubstr("contradicts"));
  EXPECT_THAT(error([](Faults* faults) { faults->row_remap_failed = 2; }),
              HasSubstr("contradicts"));
  EXPECT_THAT(error([](Faults* faults) { faults->xids = kMostXids + 1; }),
              HasSubstr("contradicts"));
  EXPECT_THAT(error([](Faults* faults) {
                faults->xids = 1;
                faults->xid[0] = kLargestXid + 1;
              }),
              HasSubstr("contradicts"));
}

TEST(AgentMessages, Descriptors_ComeWithACreatedAloneAndOneByOne) {
  Reply created = MakeReply(ReplyType::kCreated, 5);
  created.slab = 7;
  EXPECT_THAT(ReplyError(created, 0), HasSubstr("0 descriptors"));
  EXPECT_THAT(ReplyError(created, 2), HasSubstr("2 descriptors"));
  EXPECT_THAT(ReplyError(Hello(), 1), HasSubstr("1 descriptors"));
  created.slab = 0;
  EXPECT_THAT(ReplyError(created, 1), HasSubstr("slab 0"));
}

TEST(AgentMessages, WrongFactsOfAGpu_AreRefused) {
  EXPECT_EQ(HelloError([](GpuFacts*) {}), "");
  EXPECT_THAT(HelloError([](GpuFacts* gpu) { std::memset(gpu->name, 'x', sizeof(gpu->name)); }),
              HasSubstr("not text"));
  EXPECT_THAT(HelloError([](GpuFacts* gpu) { gpu->pci[0] = '\n'; }), HasSubstr("not text"));
  EXPECT_THAT(HelloError([](GpuFacts* gpu) { gpu->uuid[0] = 'x'; }), HasSubstr("not the UUID"));
  EXPECT_THAT(HelloError([](GpuFacts* gpu) { gpu->numa_node = -2; }),
              HasSubstr("impossible NUMA node"));
  EXPECT_THAT(HelloError([](GpuFacts* gpu) { gpu->is_mig = 2; }),
              HasSubstr("impossible NUMA node"));
  EXPECT_THAT(HelloError([](GpuFacts* gpu) { gpu->total_bytes = 0; }), HasSubstr("of 0 bytes"));
  EXPECT_THAT(HelloError([](GpuFacts* gpu) { gpu->free_bytes = ~uint64_t{0}; }), HasSubstr("free"));
  for (const uint64_t granularity : {uint64_t{0}, uint64_t{3}, uint64_t{1} << 40}) {
    EXPECT_THAT(HelloError([&](GpuFacts* gpu) { gpu->granularity_bytes = granularity; }),
                HasSubstr("slabs of"));
  }
}

TEST(AgentMessages, WrongReplies_AreRefused) {
  EXPECT_THAT(ReplyError(MakeReply(ReplyType::kNone, 1)), HasSubstr("unknown type 0"));
  EXPECT_THAT(ReplyError(MakeReply(ReplyType{99}, 1)), HasSubstr("unknown type 99"));
  EXPECT_THAT(ReplyError(MakeReply(ReplyType::kReleased, 0)), HasSubstr("request 0"));
  Reply hello = Hello();
  hello.id = 1;
  EXPECT_THAT(ReplyError(hello), HasSubstr("request 1"));
  Reply good = MakeReply(ReplyType::kReleased, 1);
  good.status = 3;
  EXPECT_THAT(ReplyError(good), HasSubstr("status 3"));
  EXPECT_THAT(ReplyError(MakeReply(ReplyType::kFailed, 1)), HasSubstr("without a reason"));
  EXPECT_THAT(ReplyError(MakeReply(ReplyType::kHealthy, 1)), HasSubstr("contradicts"));
}

TEST(AgentMessages, Failure_CarriesItsStatusAndWhatFitsOfItsWords) {
  const absl::Status error = absl::ResourceExhaustedError("the GPU has\nno memory left");
  const absl::StatusOr<Reply> read = ReadReply(Bytes(MakeFailure(9, error)), 0);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(StatusOf(*read), absl::ResourceExhaustedError("the GPU has?no memory left"));
  const absl::StatusOr<Reply> cut =
      ReadReply(Bytes(MakeFailure(0, absl::InternalError(std::string(1000, 'x')))), 0);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(StatusOf(*cut).message().size(), size_t{kErrorBytes - 1});
}

TEST(AgentMessages, AnotherVersion_IsRefusedWithBothWhateverElseIsInTheMessage) {
  Request request = MakeRequest(RequestType::kHealth, 1, 0, 0);
  request.version = 77;
  const absl::Status status = ReadRequest(Bytes(request).first(8)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 2, the other version 77"));
}

TEST(AgentMessages, OtherSizesAndMagics_AreRefused) {
  const Request request = MakeRequest(RequestType::kHealth, 1, 0, 0);
  EXPECT_FALSE(ReadRequest({}).ok());
  EXPECT_FALSE(ReadRequest(Bytes(request).first(sizeof(request) - 1)).ok());
  EXPECT_FALSE(ReadReply(Bytes(request), 0).ok());
  EXPECT_THAT(RequestError({}), HasSubstr("not a message of geminid"));
}

TEST(AgentMessages, Uuid_IsParsedAsCudaHasIt) {
  const absl::StatusOr<shm::Uuid> uuid = ParseUuid(kUuid);
  ASSERT_TRUE(uuid.ok()) << uuid.status();
  EXPECT_EQ(shm::ToString(*uuid), "f81d4fae-7dec-11d0-a765-00a0c91e6bf6");
  EXPECT_TRUE(ParseUuid("MIG-F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6").ok());
  for (const char* text :
       {"", "GPU-", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        "GPU-f81d4fae-7dec-11d0-a765-00a0c91e6bf", "GPU-f81d4fae-7dec-11d0-a765-00a0c91e6bf66",
        "GPU-f81d4fae-7dec-11d0-a765-00a0c91e6bfg", "GPU-f81d4fae+7dec-11d0-a765-00a0c91e6bf6"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseUuid(text).status())) << text;
  }
}

}  // namespace
}  // namespace geminid::agent
