// Counts the bytes that the ranks of a run exchanged, by axis of the mesh and by collective.
#ifndef GEMINID_TRAINING_LOGS_AXIS_TRAFFIC_H_
#define GEMINID_TRAINING_LOGS_AXIS_TRAFFIC_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"

namespace geminid::trainer {

// kTable: the first and the last stage of a pipeline, which sum the gradient of a shared token
// table. kAll: all ranks, for losses, norms and, without model parallelism, weights and gradients.
enum class TrafficAxis : uint8_t { kPipeline, kData, kSequence, kExpert, kTensor, kTable, kAll };
inline constexpr int kTrafficAxes = 7;

const char* Name(TrafficAxis axis);

// The traffic of one axis and operation, summed over all ranks where no comment says otherwise.
struct TrafficRow {
  TrafficAxis axis = TrafficAxis::kAll;
  collectives::OpKind operation = collectives::OpKind::kBarrier;
  uint64_t calls = 0;           // the maximum over ranks
  uint64_t bytes_sent = 0;      // the sum over ranks
  uint64_t bytes_received = 0;  // the sum over ranks
  uint64_t network_bytes = 0;   // received over TCP; the sum over ranks
  uint64_t partners = 0;        // ranks that exchanged bytes with one rank; the maximum over ranks
  double seconds = 0;           // spent in the calls; the maximum over ranks
};

// "axis      operation ..." and a line for each row.
std::string TrafficTable(const std::vector<TrafficRow>& rows);

// Meters the traffic of one rank. Everything passed to Add outlives it.
class TrafficMeter {
 public:
  explicit TrafficMeter(collectives::Communicator& world) : world_(world) {}

  using Stats = std::function<collectives::CommunicatorStats()>;
  // Adds a communicator made from the world. `ranks`: the world's ranks that belong to it.
  void Add(TrafficAxis axis, std::vector<int> ranks, Stats stats);

  // A collective of `ranks`: all ranks of the world, which use no other communicator meanwhile.
  // Leaves out rows without a call.
  absl::StatusOr<std::vector<TrafficRow>> Gather(collectives::Communicator& ranks) const;

 private:
  struct Source {
    TrafficAxis axis;
    std::vector<int> ranks;
    Stats stats;
  };
  collectives::Communicator& world_;
  std::vector<Source> sources_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_AXIS_TRAFFIC_H_
