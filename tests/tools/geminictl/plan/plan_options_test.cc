// How geminictl plan reads its flags and the machine that it runs on.
#include "tools/geminictl/plan/plan_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tools/geminictl/plan/this_machine.h"
#include "training/forecast/forecast.h"

namespace geminid::ctl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

PlanFlags Gpt2() {
  PlanFlags flags;
  flags.model = "gpt2";
  return flags;
}

PlanRequest Parsed(const PlanFlags& flags, const ThisMachine& machine = {}) {
  absl::StatusOr<PlanRequest> request = ParsePlanFlags(flags, machine);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? *std::move(request) : PlanRequest{};
}

std::string ErrorOf(const PlanFlags& flags, const ThisMachine& machine = {}) {
  const absl::Status status = ParsePlanFlags(flags, machine).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

const ThisMachine kLaptop = {.accelerators = {}, .memory_bytes = 16 * kGiB};
const ThisMachine kServer = {.accelerators = {"NVIDIA H200", "NVIDIA H200"},
                             .memory_bytes = 1024 * kGiB};

TEST(ParsePlanFlags, NoHardwareAndNoMemoryOnAKnownMachine_TakesIt) {
  const PlanRequest request = Parsed(Gpt2(), kServer);
  EXPECT_EQ(request.job.hardware.name, "h200");
  EXPECT_EQ(request.job.host_bytes, 1024 * kGiB);
  EXPECT_TRUE(request.host_is_given);
  EXPECT_THAT(request.missing_rates, IsEmpty());
  EXPECT_THAT(request.notes, Contains(HasSubstr("2 x h200")));
}

TEST(ParsePlanFlags, NoHardwareAndNoMemoryWithoutAccelerator_TakesAHostDevice) {
  const PlanRequest request = Parsed(Gpt2(), kLaptop);
  EXPECT_EQ(request.job.hardware.usable_bytes(), 8 * kGiB);
  EXPECT_EQ(request.job.host_bytes, 8 * kGiB);
  EXPECT_THAT(request.notes, ElementsAre(HasSubstr("half of its 16.0 GiB")));
  EXPECT_FALSE(request.missing_rates.empty());
}

TEST(ParsePlanFlags, HostMemoryAlone_TakesTheDevicesOfThisMachineOrAsksForThem) {
  PlanFlags flags = Gpt2();
  flags.host_memory = "64GiB";
  EXPECT_EQ(Parsed(flags, kServer).job.host_bytes, 64 * kGiB);
  EXPECT_THAT(ErrorOf(flags, kLaptop), HasSubstr("--device-memory"));
  EXPECT_THAT(ErrorOf(Gpt2(), {.accelerators = {"NVIDIA Z9000"}, .memory_bytes = kGiB}),
              HasSubstr("NVIDIA Z9000"));
}

TEST(ParsePlanFlags, DeviceMemoryAlone_NeedsNoMachine) {
  PlanFlags flags = Gpt2();
  flags.device_memory = "24GiB";
  const PlanRequest request = Parsed(flags, kServer);
  EXPECT_EQ(request.job.hardware.usable_bytes(), 24 * kGiB);
  EXPECT_EQ(request.job.host_bytes, forecast::kMostHostBytes);
  EXPECT_FALSE(request.host_is_given);
}

TEST(ParsePlanFlags, EveryRateWithoutHardware_LeavesNothingMissing) {
  PlanFlags flags = Gpt2();
  flags.device_memory = "24GiB";
  flags.compute = "100e12";
  flags.achieved = "0.5";
  flags.link_up = flags.link_down = "20GB/s";
  flags.device_bandwidth = "900GB/s";
  EXPECT_THAT(Parsed(flags).missing_rates, ElementsAre("--dram"));
  flags.dram = "50GB/s";
  EXPECT_THAT(Parsed(flags).missing_rates, IsEmpty());
  flags.ranks = "2";
  EXPECT_THAT(Parsed(flags).missing_rates, ElementsAre("--peer"));
}

TEST(ParsePlanFlags, PositionsBeyondALearnedTable_AreRefused) {
  PlanFlags flags = Gpt2();
  flags.hardware = "h200";
  flags.sequence = "1025";
  EXPECT_THAT(ErrorOf(flags), HasSubstr("ends at 1024"));
  flags.model = "llama-7b";
  flags.sequence = "4000";
  EXPECT_THAT(Parsed(flags).notes,
              ElementsAre(HasSubstr("geminid-train's llama-7b"), HasSubstr("longer than")));
}

TEST(ParsePlanFlags, SequenceOfImages_IsNoChoice) {
  PlanFlags flags;
  flags.config = GEMINID_FORECAST_DATA "/vit-base-patch16-224.json";
  flags.hardware = "h200";
  EXPECT_EQ(Parsed(flags).job.batch.sequence_length, 197u);
  flags.sequence = "256";
  EXPECT_THAT(ErrorOf(flags), HasSubstr("197"));
}

TEST(ReadThisMachine, DriverFolder_NamesTheAccelerators) {
  std::string folder = (std::filesystem::temp_directory_path() / "driver.XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  for (const char* bus : {"0000:01:00.0", "0000:02:00.0"}) {
    std::filesystem::create_directory(folder + "/" + bus);
    std::ofstream(folder + "/" + bus + "/information")
        << "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 65\n";
  }
  std::filesystem::create_directory(folder + "/empty");
  const ThisMachine machine = ReadThisMachine(folder);
  EXPECT_THAT(machine.accelerators, ElementsAre("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"));
  EXPECT_GT(machine.memory_bytes, 0u);
  std::filesystem::remove_all(folder);
  EXPECT_THAT(ReadThisMachine(folder).accelerators, IsEmpty());
}

}  // namespace
}  // namespace geminid::ctl
