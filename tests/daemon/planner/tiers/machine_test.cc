#include "daemon/planner/tiers/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "daemon/planner/tiers/update.h"
#include "tests/daemon/planner/tiers/problems.h"

namespace geminid::planner {
namespace {

constexpr double kGiga = 1e9;

// Two sockets of DDR5-4800: 16 channels of 38.4 GB/s.
constexpr double kTwoSockets = 16 * 38.4 * kGiga;

Machine Gpus(std::uint32_t count) {
  Machine machine = PlainMachine();
  machine.host_memory_bytes_per_second = kTwoSockets;
  machine.ranks_on_node = count;
  machine.world_size = count;
  return machine;
}

// The formula of machine.h.
double StreamedUpdateRate(const Machine& machine, const UpdateTraffic& traffic) {
  const auto ranks = static_cast<double>(machine.ranks_on_node);
  return std::min({ranks * UpRate(machine) / traffic.state_bytes,
                   ranks * DownRate(machine) / traffic.state_bytes,
                   ranks * BothRate(machine) / (2 * traffic.state_bytes),
                   machine.host_memory_bytes_per_second / (2 * traffic.state_bytes)});
}

TEST(UpdateRates, OneGpuAt50GBs_CpuUpdatesFaster) {
  const Machine machine = Gpus(1);
  EXPECT_DOUBLE_EQ(StreamedUpdateRate(machine, {}), 50 * kGiga / 12);  // 4.2 Gparameters/s
  EXPECT_DOUBLE_EQ(HostUpdateRate(machine, {}), 0.8 * kTwoSockets / 28);
  EXPECT_LT(StreamedUpdateRate(machine, {}), HostUpdateRate(machine, {}));
}

TEST(UpdateRates, EightGpusAt50GBs_StreamingIsFasterAndBoundByHostMemory) {
  const Machine machine = Gpus(8);
  EXPECT_DOUBLE_EQ(StreamedUpdateRate(machine, {}), kTwoSockets / 24);
  EXPECT_GT(8 * 50 * kGiga / 12, kTwoSockets / 24);
  EXPECT_GT(StreamedUpdateRate(machine, {}), HostUpdateRate(machine, {}));
}

TEST(UpdateRates, NumberOfGpus_FlipsWhereTheFormulaSays) {
  // n B_pcie / 12 > eta B_dram / 28
  const double flip = 12 * 0.8 * kTwoSockets / (28 * 50 * kGiga);
  for (std::uint32_t n = 1; n <= 8; ++n) {
    const Machine machine = Gpus(n);
    EXPECT_EQ(StreamedUpdateRate(machine, {}) > HostUpdateRate(machine, {}), n > flip) << n;
  }
}

TEST(UpdateRates, HalvesOfASharedLink_BoundStreaming) {
  Machine machine = Gpus(4);
  machine.both_bytes_per_second = 60 * kGiga;
  EXPECT_DOUBLE_EQ(StreamedUpdateRate(machine, {}), 4 * 60 * kGiga / 24);
  machine.node_up_bytes_per_second = 40 * kGiga;
  EXPECT_DOUBLE_EQ(UpRate(machine), 10 * kGiga);
  EXPECT_DOUBLE_EQ(StreamedUpdateRate(machine, {}), 4 * 10 * kGiga / 12);
}

TEST(UpdateRates, CostOfOneChunk_AgreesWithTheRates) {
  for (const std::uint32_t ranks : {1u, 8u}) {
    const Machine machine = Gpus(ranks);
    const OptimizerItem item = {1000000, 2000000, 2000000, 8000000, 2000000};
    const double of_all = static_cast<double>(ranks) * 1e6;
    EXPECT_NEAR(CostOfUpdate(machine, item, 0, OptimizerPlace::kHost).cpu,
                of_all / HostUpdateRate(machine, {}), 1e-12);
    EXPECT_NEAR(CostOfUpdate(machine, item, 0, OptimizerPlace::kDevice).device,
                of_all / DeviceUpdateRate(machine, {}), 1e-12);
    const UpdateCost streamed = CostOfUpdate(machine, item, 0, OptimizerPlace::kStreamed);
    EXPECT_NEAR(std::max({streamed.up, streamed.down, streamed.memory}) - machine.latency_seconds,
                of_all / StreamedUpdateRate(machine, {}), 2e-5);
  }
}

TEST(ValidateMachine, EachWrongField_IsNamed) {
  const auto refused = [](auto change, const char* field) {
    Machine machine = PlainMachine();
    ASSERT_TRUE(ValidateMachine(machine).ok());
    change(machine);
    const absl::Status status = ValidateMachine(machine);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(field), std::string::npos) << status;
  };
  refused([](Machine& m) { m.up_bytes_per_second = 0; }, "up_bytes_per_second");
  refused([](Machine& m) { m.down_bytes_per_second = -1; }, "down_bytes_per_second");
  refused([](Machine& m) { m.both_bytes_per_second = 1.0 / 0.0; }, "both_bytes_per_second");
  refused([](Machine& m) { m.cpu_update_share = 1.5; }, "cpu_update_share");
  refused([](Machine& m) { m.ranks_on_node = 0; }, "ranks");
  refused([](Machine& m) { m.ranks_on_node = 2; }, "world_size");
}

}  // namespace
}  // namespace geminid::planner
