// The real geminid-agent, as a process of its own, on a driver without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mapping.h"
#include "daemon/gpus/agent_process.h"
#include "daemon/gpus/probe.h"
#include "daemon/os/unix_socket.h"
#include "gpu/nvml_api.h"
#include "tests/gpu/double/node.h"

namespace geminid::agent {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGpuBytes = 64 * kMiB;

class AgentTest : public ::testing::Test {
 protected:
  explicit AgentTest(int instances = 0)
      : node_({.devices = 2,
               .memory_bytes = kGpuBytes,
               .instances = instances,
               .libcuda = GEMINID_CUDA_DOUBLE,
               .libnvml = GEMINID_NVML_DOUBLE}) {}

  // Starts an agent, for GPU 1 of two unless `uuid` names another.
  void Start(const std::string& uuid = gpu_double::UuidOf(1)) {
    absl::StatusOr<gpus::AgentProcess> process = gpus::AgentProcess::Start(GEMINID_AGENT, uuid);
    ASSERT_TRUE(process.ok()) << process.status();
    process_.emplace(*std::move(process));
  }
  void StartAndHear() {
    Start();
    const gpus::AgentProcess::ReceivedReply hello = Hear();
    ASSERT_EQ(hello.reply.type, ReplyType::kHello) << StatusOf(hello.reply);
  }

  gpus::AgentProcess::ReceivedReply Hear() {
    for (;;) {
      pollfd entry = {.fd = process_->socket().get(), .events = POLLIN, .revents = 0};
      ::poll(&entry, 1, -1);
      absl::StatusOr<std::optional<gpus::AgentProcess::ReceivedReply>> heard = process_->Receive();
      if (!heard.ok()) {
        return {.reply = MakeFailure(0, heard.status()), .fd = {}};
      }
      if (heard->has_value()) return std::move(**heard);
    }
  }
  gpus::AgentProcess::ReceivedReply Ask(RequestType type, uint64_t slab, uint64_t bytes) {
    EXPECT_TRUE(process_->Send(MakeRequest(type, ++requests_, slab, bytes)).ok());
    gpus::AgentProcess::ReceivedReply heard = Hear();
    EXPECT_TRUE(heard.reply.id == 0 || heard.reply.id == requests_);
    return heard;
  }
  std::string AwaitEnd() {
    pollfd entry = {.fd = process_->pidfd().get(), .events = POLLIN, .revents = 0};
    ::poll(&entry, 1, -1);
    return process_->HowItEnded().value_or("it has not");
  }
  Health ReadHealth() { return Ask(RequestType::kHealth, 0, 0).reply.health; }

  // Whether all bytes of a slab have that value. Only a slab of the double can be read like this.
  static bool IsAll(std::byte byte, const base::UniqueFd& slab, uint64_t bytes) {
    const absl::StatusOr<base::Mapping> mapping = base::Mapping::Map(slab, bytes);
    EXPECT_TRUE(mapping.ok()) << mapping.status();
    return std::all_of(mapping->data(), mapping->data() + bytes,
                       [byte](std::byte each) { return each == byte; });
  }

  gpu_double::Node node_;
  std::optional<gpus::AgentProcess> process_;
  uint64_t requests_ = 0;
};

TEST_F(AgentTest, Probe_TellsTheGpusOfNvml) {
  const auto gpus = gpus::FindGpus(GEMINID_AGENT, absl::Minutes(1));
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 2u);
  EXPECT_EQ((*gpus)[1].uuid, gpu_double::UuidOf(1));
  EXPECT_EQ((*gpus)[1].total_bytes, kGpuBytes);
  EXPECT_EQ((*gpus)[1].free_bytes, kGpuBytes);
  EXPECT_EQ((*gpus)[1].numa_node, shm::kNoNumaNode);
}

// GPU 0 is divided into two.
class AgentOfAnInstance : public AgentTest {
 protected:
  AgentOfAnInstance() : AgentTest(/*instances=*/2) {}
};

TEST_F(AgentOfAnInstance, Probe_TellsTheInstancesInThePlaceOfTheirGpu) {
  const auto gpus = gpus::FindGpus(GEMINID_AGENT, absl::Minutes(1));
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  std::vector<std::string> uuids;
  for (const GpuFacts& gpu : *gpus) {
    uuids.emplace_back(gpu.uuid);
    const bool is_instance = uuids.back().starts_with("MIG-");
    EXPECT_EQ(gpu.is_mig, is_instance ? 1u : 0u);
    EXPECT_EQ(gpu.total_bytes, is_instance ? kGpuBytes / 2 : kGpuBytes);
    EXPECT_EQ(gpu.pci, gpu_double::PciBusIdOf(is_instance ? 0 : 1));
  }
  EXPECT_THAT(uuids, ::testing::ElementsAre(gpu_double::InstanceUuidOf(0),
                                            gpu_double::InstanceUuidOf(1), gpu_double::UuidOf(1)));
}

TEST_F(AgentOfAnInstance, Slabs_AreOfItsOwnMemoryAndNoMore) {
  const int device = 3;  // the second instance
  Start(gpu_double::InstanceUuidOf(1));
  const Reply hello = Hear().reply;
  ASSERT_EQ(hello.type, ReplyType::kHello) << StatusOf(hello);
  EXPECT_EQ(hello.gpu.total_bytes, kGpuBytes / 2);
  const gpus::AgentProcess::ReceivedReply made = Ask(RequestType::kCreate, 0, 24 * kMiB);
  ASSERT_EQ(made.reply.type, ReplyType::kCreated) << StatusOf(made.reply);
  EXPECT_EQ(node_.used_bytes(device), 24 * kMiB);
  EXPECT_EQ(ReadHealth().free_bytes, kGpuBytes / 2 - 24 * kMiB);
  const Reply refused = Ask(RequestType::kCreate, 0, 24 * kMiB).reply;
  ASSERT_EQ(refused.type, ReplyType::kFailed);
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(refused))) << StatusOf(refused);
  EXPECT_EQ(Ask(RequestType::kScrub, made.reply.slab, 0).reply.type, ReplyType::kScrubbed);
}

TEST_F(AgentTest, ProbeOfAGpuThatIsLost_ListsTheOther) {
  node_.SetLost(0, true);
  const auto gpus = gpus::FindGpus(GEMINID_AGENT, absl::Minutes(1));
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 1u);
  EXPECT_EQ((*gpus)[0].uuid, gpu_double::UuidOf(1));
}

TEST_F(AgentTest, Hello_HasTheFactsOfItsGpu) {
  Start();
  const Reply hello = Hear().reply;
  ASSERT_EQ(hello.type, ReplyType::kHello) << StatusOf(hello);
  EXPECT_EQ(hello.gpu.uuid, gpu_double::UuidOf(1));
  EXPECT_EQ(hello.gpu.granularity_bytes, 2 * kMiB);
  EXPECT_EQ(hello.gpu.total_bytes, kGpuBytes);
}

TEST_F(AgentTest, Slab_IsMadeWithoutAContextAndComesBack) {
  StartAndHear();
  gpus::AgentProcess::ReceivedReply made = Ask(RequestType::kCreate, 0, 8 * kMiB);
  ASSERT_EQ(made.reply.type, ReplyType::kCreated) << StatusOf(made.reply);
  EXPECT_EQ(node_.used_bytes(1), 8 * kMiB);
  EXPECT_EQ(node_.used_bytes(0), 0u);
  const Health health = ReadHealth();
  EXPECT_EQ(health.slabs, 1u);
  EXPECT_EQ(health.slab_bytes, 8 * kMiB);
  EXPECT_EQ(health.free_bytes, kGpuBytes - 8 * kMiB);
  EXPECT_EQ(health.has_context, 0u);
  EXPECT_EQ(node_.calls("cuDevicePrimaryCtxRetain"), 0u);
  made.fd.Reset();
  EXPECT_EQ(node_.used_bytes(1), 8 * kMiB);  // the agent has the slab
  EXPECT_EQ(Ask(RequestType::kRelease, made.reply.slab, 0).reply.type, ReplyType::kReleased);
  EXPECT_EQ(node_.used_bytes(1), 0u);
  EXPECT_EQ(ReadHealth().slabs, 0u);
}

TEST_F(AgentTest, DriverThatWantsAContext_GetsOneAndItIsSaid) {
  node_.SetCreateNeedsContext(true);
  StartAndHear();
  ASSERT_EQ(Ask(RequestType::kCreate, 0, 2 * kMiB).reply.type, ReplyType::kCreated);
  EXPECT_EQ(ReadHealth().has_context, 1u);
  ASSERT_EQ(Ask(RequestType::kCreate, 0, 2 * kMiB).reply.type, ReplyType::kCreated);
  EXPECT_EQ(node_.calls("cuDevicePrimaryCtxRetain"), 1u);
}

TEST_F(AgentTest, SlabOfAKilledAgent_LivesAsLongAsItsDescriptor) {
  StartAndHear();
  gpus::AgentProcess::ReceivedReply made = Ask(RequestType::kCreate, 0, 8 * kMiB);
  process_->Kill();
  EXPECT_THAT(AwaitEnd(), HasSubstr("signal 9"));
  EXPECT_EQ(node_.used_bytes(1), 8 * kMiB);
  made.fd.Reset();
  EXPECT_EQ(node_.used_bytes(1), 0u);
}

TEST_F(AgentTest, Scrub_WritesZerosAndLeavesNoContext) {
  node_.SetFreshByte(0xAB);
  StartAndHear();
  const gpus::AgentProcess::ReceivedReply made = Ask(RequestType::kCreate, 0, 4 * kMiB);
  ASSERT_EQ(made.reply.type, ReplyType::kCreated) << StatusOf(made.reply);
  EXPECT_TRUE(IsAll(std::byte{0xAB}, made.fd, 4 * kMiB));
  const Reply scrubbed = Ask(RequestType::kScrub, made.reply.slab, 0).reply;
  ASSERT_EQ(scrubbed.type, ReplyType::kScrubbed) << StatusOf(scrubbed);
  EXPECT_TRUE(IsAll(std::byte{0}, made.fd, 4 * kMiB));
  EXPECT_EQ(node_.calls("cuDevicePrimaryCtxRetain"), node_.calls("cuDevicePrimaryCtxRelease"));
}

TEST_F(AgentTest, FullGpu_IsSaidWithNumbersAndTheAgentGoesOn) {
  StartAndHear();
  ASSERT_EQ(Ask(RequestType::kCreate, 0, 48 * kMiB).reply.type, ReplyType::kCreated);
  const Reply refused = Ask(RequestType::kCreate, 0, 32 * kMiB).reply;
  ASSERT_EQ(refused.type, ReplyType::kFailed);
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(refused)));
  EXPECT_THAT(std::string(StatusOf(refused).message()),
              AllOf(HasSubstr("no 32.0 MiB left"), HasSubstr("16.0 MiB of 64.0 MiB are free"),
                    HasSubstr("48.0 MiB are sessions'")));
  EXPECT_EQ(Ask(RequestType::kCreate, 0, 16 * kMiB).reply.type, ReplyType::kCreated);
}

TEST_F(AgentTest, RequestsThatCannotBe_AreRefusedAndTheAgentGoesOn) {
  StartAndHear();
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(Ask(RequestType::kCreate, 0, 3 * kMiB).reply)));
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Ask(RequestType::kScrub, 77, 0).reply)));
  EXPECT_EQ(node_.used_bytes(1), 0u);
  EXPECT_EQ(ReadHealth().slabs, 0u);
}

TEST_F(AgentTest, MessageThatIsNoRequest_EndsTheAgentWithAReason) {
  StartAndHear();
  const std::array<std::byte, 5> noise = {};
  ASSERT_TRUE(os::SendMessage(process_->socket(), noise, {}).ok());
  const Reply last = Hear().reply;
  ASSERT_EQ(last.type, ReplyType::kFailed);
  EXPECT_EQ(last.id, 0u);
  EXPECT_THAT(std::string(StatusOf(last).message()), HasSubstr("a message of 5 bytes"));
  EXPECT_THAT(AwaitEnd(), HasSubstr("exit code"));
}

TEST_F(AgentTest, LostGpu_EndsTheAgentWithAReason) {
  StartAndHear();
  node_.SetLost(1, true);
  EXPECT_EQ(Ask(RequestType::kHealth, 0, 0).reply.type, ReplyType::kFailed);
  const Reply last = Hear().reply;
  EXPECT_EQ(last.id, 0u);
  EXPECT_TRUE(absl::IsDataLoss(StatusOf(last))) << StatusOf(last);
  EXPECT_THAT(AwaitEnd(), HasSubstr("exit code"));
}

TEST_F(AgentTest, Faults_AreWhatNvmlSays) {
  node_.RaiseXid(1, 31);  // before the agent watches
  StartAndHear();
  EXPECT_EQ(ReadHealth().faults.known, kAllKnown);
  node_.SetUncorrectedErrors(1, 2, 7);
  node_.SetRetiredPagesPending(1, true);
  node_.SetRowRemaps(1, /*pending=*/true, /*failed=*/false);
  node_.RaiseXid(0, 79);  // of another GPU
  for (const uint32_t xid : {63, 94}) node_.RaiseXid(1, xid);
  const Faults faults = ReadHealth().faults;
  EXPECT_EQ(faults.volatile_errors, 2u);
  EXPECT_EQ(faults.aggregate_errors, 7u);
  EXPECT_EQ(faults.retired_pages_pending, 1u);
  EXPECT_EQ(faults.row_remap_pending, 1u);
  EXPECT_EQ(faults.row_remap_failed, 0u);
  ASSERT_EQ(faults.xids, 2u);
  EXPECT_EQ(faults.xid[0], 63u);
  EXPECT_EQ(faults.xid[1], 94u);
  EXPECT_EQ(ReadHealth().faults.xids, 0u) << "each is told once";
}

TEST_F(AgentTest, MoreXidsThanFit_ComeWithTheNextAnswer) {
  StartAndHear();
  for (uint32_t i = 0; i < kMostXids + 2; ++i) node_.RaiseXid(1, 100 + i);
  EXPECT_EQ(ReadHealth().faults.xids, kMostXids);
  const Faults rest = ReadHealth().faults;
  ASSERT_EQ(rest.xids, 2u);
  EXPECT_EQ(rest.xid[1], 100 + kMostXids + 1);
}

TEST_F(AgentTest, HealthThatTheGpuCannotSay_IsNotKnown) {
  node_.SetSaysNoHealth(true);
  StartAndHear();
  const Health health = ReadHealth();
  EXPECT_EQ(health.faults.known, 0u);
  EXPECT_EQ(health.total_bytes, kGpuBytes);
}

TEST_F(AgentTest, NvmlWithoutThoseFunctions_IsGoodEnough) {
  ::setenv(gpu::kNvmlPathVariable, GEMINID_OLD_NVML_DOUBLE, 1);
  StartAndHear();
  EXPECT_EQ(ReadHealth().faults.known, 0u);
  EXPECT_EQ(Ask(RequestType::kCreate, 0, 2 * kMiB).reply.type, ReplyType::kCreated);
}

TEST_F(AgentOfAnInstance, Faults_AreItsGpusButForXidsOfOtherInstances) {
  Start(gpu_double::InstanceUuidOf(1));
  ASSERT_EQ(Hear().reply.type, ReplyType::kHello);
  node_.SetUncorrectedErrors(0, 1, 1);
  node_.RaiseXid(0, 94, /*instance=*/0);
  node_.RaiseXid(0, 95, /*instance=*/1);
  node_.RaiseXid(0, 79);
  const Faults faults = ReadHealth().faults;
  EXPECT_EQ(faults.known, kAllKnown & ~kRowRemaps) << "not of a GPU that is divided";
  EXPECT_EQ(faults.volatile_errors, 1u);
  ASSERT_EQ(faults.xids, 2u);
  EXPECT_EQ(faults.xid[0], 95u);
  EXPECT_EQ(faults.xid[1], 79u);
}

TEST_F(AgentTest, DriverThatDoesNotStart_IsSaidInOneLine) {
  node_.Fail("cuInit", CUDA_ERROR_NO_DEVICE);
  Start();
  const Reply last = Hear().reply;
  ASSERT_EQ(last.type, ReplyType::kFailed);
  EXPECT_TRUE(absl::IsUnavailable(StatusOf(last))) << StatusOf(last);
  EXPECT_THAT(std::string(StatusOf(last).message()), HasSubstr("CUDA_ERROR_NO_DEVICE"));
  EXPECT_THAT(AwaitEnd(), HasSubstr("exit code"));
}

TEST_F(AgentTest, EndOfTheDaemonsSocket_EndsTheAgent) {
  StartAndHear();
  ASSERT_EQ(::shutdown(process_->socket().get(), SHUT_RDWR), 0);
  EXPECT_EQ(AwaitEnd(), "exit code 0");
}

TEST_F(AgentTest, ManySlabs_LeaveNoDescriptorsAndNoMemory) {
  StartAndHear();
  const std::string folder = absl::StrCat("/proc/", process_->pid(), "/fd");
  const auto open = [&] { return std::distance(std::filesystem::directory_iterator(folder), {}); };
  decltype(open()) before = 0;
  for (int i = 0; i < 300; ++i) {
    const gpus::AgentProcess::ReceivedReply made = Ask(RequestType::kCreate, 0, 2 * kMiB);
    ASSERT_EQ(made.reply.type, ReplyType::kCreated) << StatusOf(made.reply);
    if (i % 10 == 0) Ask(RequestType::kScrub, made.reply.slab, 0);
    ASSERT_EQ(Ask(RequestType::kRelease, made.reply.slab, 0).reply.type, ReplyType::kReleased);
    if (i == 0) before = open();  // the driver has descriptors of its own
  }
  EXPECT_EQ(open(), before);
  EXPECT_EQ(node_.used_bytes(1), 0u);
}

}  // namespace
}  // namespace geminid::agent
