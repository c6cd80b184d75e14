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

// kTable: the ends of a pipeline, of a table that both have. kAll: what goes over all ranks, such
// as losses and norms, and where the model is whole the engine's weights and gradients.
enum class TrafficAxis : uint8_t { kPipeline, kData, kSequence, kExpert, kTensor, kTable, kAll };
inline constexpr int kTrafficAxes = 7;

const char* Name(TrafficAxis axis);

// Of one axis and operation, of all ranks.
struct TrafficRow {
  TrafficAxis axis = TrafficAxis::kAll;
  collectives::OpKind operation = collectives::OpKind::kBarrier;
  uint64_t calls = 0;           // of the rank with the most
  uint64_t bytes_sent = 0;      // of all ranks together
  uint64_t bytes_received = 0;  // of all ranks together
  uint64_t network_bytes = 0;   // received, over TCP; of all ranks together
  uint64_t partners = 0;        // ranks that bytes went to or came from; of the rank with the most
  double seconds = 0;           // in the calls; of the rank with the most
};

// "axis      operation ..." and a line for each row.
std::string TrafficTable(const std::vector<TrafficRow>& rows);

// One rank's. What it is told of outlives it.
class TrafficMeter {
 public:
  explicit TrafficMeter(collectives::Communicator& world) : world_(world) {}

  using Stats = std::function<collectives::CommunicatorStats()>;
  // A communicator made from the world, whose ranks there are `ranks`.
  void Add(TrafficAxis axis, std::vector<int> ranks, Stats stats);

  // A collective of `ranks`, all ranks of the world, that do nothing else meanwhile. Without rows
  // of which no rank made a call.
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
