// The speeds and capacities of accelerators and their machines, each number with its source.
#ifndef GEMINID_TRAINING_FORECAST_HARDWARE_H_
#define GEMINID_TRAINING_FORECAST_HARDWARE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::forecast {

// Rates are in one direction, in decimal bytes and operations per second. The device's numbers are
// its maker's; `achieved_share` is the part that training reaches. Every number can be overridden.
struct Hardware {
  std::string name;
  std::uint64_t device_bytes = 0;    // all of it
  std::uint64_t reserved_bytes = 0;  // of that, taken by driver context and libraries
  double flops = 0;                  // dense fp16 or bf16 with fp32 sums
  double achieved_share = 0;         // of `flops`, by the large matrix products of training
  double device_memory_bytes_per_second = 0;
  double up_bytes_per_second = 0;    // host to device, achieved
  double down_bytes_per_second = 0;  // device to host, achieved
  double both_bytes_per_second = 0;  // both directions together; 0: each keeps its own rate
  // Of all ranks of a node together, in one direction; 0: each rank has its own rate.
  double node_link_bytes_per_second = 0;
  // The time to start a copy and to learn that it is done: driver call, DMA set-up and event. About
  // 10 us on every machine we know.
  double copy_latency_seconds = 10e-6;
  double peer_bytes_per_second =
      0;  // one device to others of its node (NVLink, else the host link)
  double network_bytes_per_second = 0;      // of the whole node to other nodes
  double host_memory_bytes_per_second = 0;  // of the whole node, reads and writes together
  // The time of an exchange between ranks besides its bytes: once per exchange, and for each
  // message that a rank waits for, within a node and between nodes.
  double exchange_seconds = 0;
  double peer_message_seconds = 0;
  double network_message_seconds = 0;

  std::uint64_t usable_bytes() const { return device_bytes - reserved_bytes; }
};

std::span<const Hardware> HardwareTable();

// A number of a row, and its source.
struct Constant {
  std::string name;
  double value = 0;
  const char* unit = "";
  std::string source;
};
// The constants that determine the time and the memory of a step. If `hardware` differs from the
// row of its name, or has no row, the source says that the number was given.
std::vector<Constant> ConstantsOf(const Hardware& hardware);

// NOT_FOUND, listing the names.
absl::StatusOr<Hardware> FindHardware(const std::string& name);

// The row of an accelerator, by the name that its driver gives it, such as "NVIDIA H200". nullptr
// if the table has no row for it.
const Hardware* HardwareOfDriverName(const std::string& name);

// Whether this is an accelerator of the table, even if the job overrides its numbers. False for a
// host device and for one of which only the memory is known.
bool IsInTable(const Hardware& hardware);

// Rates of no particular machine, for plans of which only the bytes matter: they let the planner
// choose among plans that fit. Memory is 0.
Hardware HardwareOfUnknownRates();

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_HARDWARE_H_
