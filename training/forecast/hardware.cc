#include "training/forecast/hardware.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/suggest.h"
#include "base/units.h"

namespace geminid::forecast {
namespace {

using base::kGiB;
using base::kMiB;

// The bytes that the driver's context, the matrix library's workspace and the collectives' buffers
// take before the first tensor: 0.3 to 0.7 GiB in common use. An estimate on the large side.
constexpr std::uint64_t kReservedBytes = 768 * kMiB;

// Host links of 16 lanes, as achieved by large copies from page-locked memory. The raw rates (PCI
// Express base specifications 3.0, 4.0, 5.0, with 128b/130b encoding) are 15.75, 31.5 and 63.0 GB/s
// in each direction; packet headers and flow control leave about 0.8 to 0.87 of them. The two
// directions have separate lanes, so each keeps its rate while both run (both_... = 0).
constexpr double kPcie3 = 12.5e9;
constexpr double kPcie4 = 26e9;
constexpr double kPcie5 = 55e9;
// NVLink-C2C: 450 GB/s in each direction (NVIDIA Grace Hopper Superchip data sheet), less overhead.
constexpr double kC2c = 420e9;

// The share of the dense rate that whole training steps report. A100: 167 of 312 TFLOP/s, LLaMA
// with Gemini, 32 A800 (Colossal-AI, examples/language/llama/README.md). H200: 534 of 989, 7
// billion parameters, 8 devices (Colossal-AI README, 2025). No published figure was found for the
// others; they are assumed to reach as much as an A100, rounded down.
constexpr double kMeasuredShare = 0.54;
constexpr double kAssumedShare = 0.5;

// Host memory, both sockets, theoretical: channels x transfers/s x 8 bytes.
constexpr double kDdr4Desktop = 2 * 3200e6 * 8;        // dual-channel DDR4-3200
constexpr double kXeonBroadwell = 2 * 4 * 2400e6 * 8;  // DGX-1: 2 x Xeon E5-2698 v4
constexpr double kEpycRome = 2 * 8 * 3200e6 * 8;       // DGX A100: 2 x EPYC 7742
constexpr double kXeonSapphire = 2 * 8 * 4800e6 * 8;   // DGX H100: 2 x Xeon 8480C
constexpr double kGrace = 500e9;                       // LPDDR5X, Grace data sheet

// Adapters to other nodes, of the whole node, 1e9 bits = 0.125e9 bytes.
constexpr double kEthernet10 = 1.25e9;
constexpr double kDgx1 = 4 * 12.5e9;   // 4 x 100 Gb/s
constexpr double kDgxA100 = 8 * 25e9;  // 8 x 200 Gb/s
constexpr double kDgxH100 = 8 * 50e9;  // 8 x 400 Gb/s
constexpr double kSuperchip = 50e9;    // 1 x 400 Gb/s

// An exchange in a ring with NCCL's protocol Simple (NVIDIA/nccl, src/graph/tuning.cc at 01afd20,
// baseLat and hwLat): 8.4 us, and for each step 3.4 over NVLink, 5.7 over PCI Express, 9.6 over the
// network.
constexpr double kExchange = 8.4e-6;
constexpr double kNvlinkMessage = 3.4e-6;
constexpr double kPcieMessage = 5.7e-6;
constexpr double kNetworkMessage = 9.6e-6;

// A node with the usual link, adapters and processors.
struct Node {
  double link;  // to the host, either way
  double network;
  double host_memory;
};
constexpr Node kDesktop3 = {kPcie3, kEthernet10, kDdr4Desktop};
constexpr Node kDesktop4 = {kPcie4, kEthernet10, kDdr4Desktop};
constexpr Node kDgxVolta = {kPcie3, kDgx1, kXeonBroadwell};
constexpr Node kDgxAmpere = {kPcie4, kDgxA100, kEpycRome};
constexpr Node kDgxHopper = {kPcie5, kDgxH100, kXeonSapphire};
constexpr Node kGraceHopper = {kC2c, kSuperchip, kGrace};

// `peer` is the rate between devices; 0: over the host link (PCI Express).
Hardware Device(const char* name, std::uint64_t bytes, double flops, double achieved_share,
                double memory_rate, double peer, const Node& node) {
  return {.name = name,
          .device_bytes = bytes,
          .reserved_bytes = kReservedBytes,
          .flops = flops,
          .achieved_share = achieved_share,
          .device_memory_bytes_per_second = memory_rate,
          .up_bytes_per_second = node.link,
          .down_bytes_per_second = node.link,
          .peer_bytes_per_second = peer == 0 ? node.link : peer,
          .network_bytes_per_second = node.network,
          .host_memory_bytes_per_second = node.host_memory,
          .exchange_seconds = kExchange,
          .peer_message_seconds = peer == 0 ? kPcieMessage : kNvlinkMessage,
          .network_message_seconds = kNetworkMessage};
}

constexpr double kNvlink2 = 150e9, kNvlink3 = 300e9, kNvlink4 = 450e9;  // half of both ways

// Every word must occur in the driver's name. The order matters: GH200 comes before H200.
struct DriverName {
  const char* row;
  const char* words[2];
};
constexpr DriverName kDriverNames[] = {
    {"gh200", {"GH200", "96GB"}},       {"h200", {" H200", ""}},
    {"h100-80gb", {" H100", "80GB"}},   {"a100-80gb", {" A100", "80GB"}},
    {"a100-40gb", {" A100", "40GB"}},   {"v100-32gb", {" V100", "32GB"}},
    {"v100-32gb", {"-V100", "32GB"}},   {"rtx-3090-24gb", {"RTX 3090", ""}},
    {"rtx-2060-6gb", {"RTX 2060", ""}},
};
// The same chip with other memory or clocks, for which the table has no row.
constexpr const char* kOtherChips[] = {"Ti", "SUPER", "NVL", "144G"};

}  // namespace

std::span<const Hardware> HardwareTable() {
  static const std::vector<Hardware>* const kTable = new std::vector<Hardware>{
      // NVIDIA Turing architecture whitepaper and product page: 240 tensor cores x 64 FMA x 1.68
      // GHz, halved for fp32 sums.
      Device("rtx-2060-6gb", 6 * kGiB, 25.8e12, kAssumedShare, 336e9, 0, kDesktop3),
      // NVIDIA Ampere GA102 whitepaper, table 2: fp16 with fp32 sums, dense.
      Device("rtx-3090-24gb", 24 * kGiB, 71e12, kAssumedShare, 936e9, 0, kDesktop4),
      // NVIDIA V100 data sheet, SXM2: fp16; there is no bf16.
      Device("v100-32gb", 32 * kGiB, 125e12, kAssumedShare, 900e9, kNvlink2, kDgxVolta),
      // NVIDIA A100 data sheet, SXM4.
      Device("a100-40gb", 40 * kGiB, 312e12, kMeasuredShare, 1555e9, kNvlink3, kDgxAmpere),
      Device("a100-80gb", 80 * kGiB, 312e12, kMeasuredShare, 2039e9, kNvlink3, kDgxAmpere),
      // NVIDIA H100 and H200 data sheets, SXM5: dense, half of the data sheets' rates with
      // sparsity. 141 GB, not GiB.
      Device("h100-80gb", 80 * kGiB, 989e12, kMeasuredShare, 3350e9, kNvlink4, kDgxHopper),
      Device("h200", 141'000'000'000, 989e12, kMeasuredShare, 4800e9, kNvlink4, kDgxHopper),
      // HBM3, Superchip data sheet.
      Device("gh200", 96 * kGiB, 989e12, kMeasuredShare, 4000e9, kNvlink4, kGraceHopper),
  };
  return *kTable;
}

absl::StatusOr<Hardware> FindHardware(const std::string& name) {
  std::vector<std::string> names;
  for (const Hardware& hardware : HardwareTable()) {
    if (hardware.name == name) return hardware;
    names.push_back(hardware.name);
  }
  return absl::NotFoundError(absl::StrCat("there is no hardware '", name,
                                          "'; the table has: ", absl::StrJoin(names, ", "),
                                          base::DidYouMean(name, names)));
}

const Hardware* HardwareOfDriverName(const std::string& name) {
  for (const char* other : kOtherChips) {
    if (absl::StrContains(name, other)) return nullptr;
  }
  for (const DriverName& driver : kDriverNames) {
    if (!absl::StrContains(name, driver.words[0]) || !absl::StrContains(name, driver.words[1])) {
      continue;
    }
    for (const Hardware& hardware : HardwareTable()) {
      if (hardware.name == driver.row) return &hardware;
    }
  }
  return nullptr;
}

std::vector<Constant> ConstantsOf(const Hardware& hardware) {
  const Hardware none;
  const absl::StatusOr<Hardware> found = FindHardware(hardware.name);
  const Hardware& row = found.ok() ? *found : none;
  const std::string maker = absl::StrCat("the maker's data sheet of ", hardware.name);
  const bool measured = row.achieved_share == kMeasuredShare;
  const std::string nccl = "NVIDIA/nccl, src/graph/tuning.cc, ring, Simple";
  struct Row {
    Constant constant;
    bool of_table;
  };
  const auto row_of = [&](const char* name, double Hardware::*field, const char* unit,
                          const std::string& source) {
    return Row{{name, hardware.*field, unit, source}, hardware.*field == row.*field};
  };
  std::vector<Row> rows = {
      {{"memory usable", static_cast<double>(hardware.usable_bytes()), "B",
        absl::StrCat(maker, ", less 768 MiB for its driver (an estimate)")},
       hardware.usable_bytes() == row.usable_bytes()},
      row_of("operations", &Hardware::flops, "/s", maker),
      row_of("achieved share", &Hardware::achieved_share, "",
             measured ? "whole runs that Colossal-AI published (README; examples/language/llama)"
                      : "assumed: no published run was found"),
      row_of("device memory", &Hardware::device_memory_bytes_per_second, "B/s", maker),
      row_of("host to device", &Hardware::up_bytes_per_second, "B/s",
             "the link's specification, less its overhead"),
      row_of("device to host", &Hardware::down_bytes_per_second, "B/s",
             "the link's specification, less its overhead"),
      row_of("peers", &Hardware::peer_bytes_per_second, "B/s", maker),
      row_of("network of a node", &Hardware::network_bytes_per_second, "B/s",
             "adapters of the usual node: DGX, Superchip, or 10 Gb/s Ethernet"),
      row_of("host memory", &Hardware::host_memory_bytes_per_second, "B/s",
             "channels x transfers/s x 8 B of the usual node's processors"),
      row_of("an exchange", &Hardware::exchange_seconds, "s", nccl),
      row_of("a peer's message", &Hardware::peer_message_seconds, "s", nccl),
      row_of("a node's message", &Hardware::network_message_seconds, "s", nccl)};
  std::vector<Constant> constants;
  for (Row& each : rows) {
    if (!each.of_table) each.constant.source = "given";
    constants.push_back(std::move(each.constant));
  }
  return constants;
}

bool IsInTable(const Hardware& hardware) { return FindHardware(hardware.name).ok(); }

Hardware HardwareOfUnknownRates() {
  Hardware hardware = Device("unknown", 0, 100e12, kAssumedShare, 1000e9, 0, kDesktop4);
  hardware.reserved_bytes = 0;
  return hardware;
}

}  // namespace geminid::forecast
