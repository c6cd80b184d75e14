// What --parallel auto trains with: of the meshes that the trainer has, the one whose step
// geminictl plan would find the shortest (tools/parallel/choose.h). Pure.
#ifndef GEMINID_TOOLS_TRAINER_MESH_CHOICE_H_
#define GEMINID_TOOLS_TRAINER_MESH_CHOICE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tools/forecast/model.h"
#include "tools/trainer/options.h"

namespace geminid::trainer {

// The model as the planner knows it; adapters are left out.
forecast::Model ForecastModelOf(const ModelConfig& config);

// Ranks that are all alike, on hosts that are, each at full work beside the others.
struct RanksPlace {
  int ranks = 1;
  int hosts = 1;                     // each with as many ranks, numbered host by host
  uint64_t device_bytes = 0;         // of a rank
  uint64_t host_bytes = 0;           // of a host, for training
  double operations_per_second = 0;  // of a rank, in products
  double copied_bytes_per_second = 0;
  double link_bytes_per_second = 0;  // to the device
  // Received by a rank from those of its host, and from those of other hosts; and how long a
  // message takes.
  double peer_bytes_per_second = 0;
  double peer_message_seconds = 0;
  double network_bytes_per_second = 0;
  double network_message_seconds = 0;
};

struct MeshChoice {
  Parallel parallel = {};
  // Of the step's sequences, options.batch x options.accumulate, which stay as they are; a
  // micro-batch is no larger than options.batch.
  uint64_t batch = 0;
  int accumulate = 1;
  std::string why = {};  // a line of words
};

// INVALID_ARGUMENT where nothing can be chosen: sequences of a step that the ranks do not share
// out evenly, adapters, and numbers of ranks that the model cannot be cut for.
absl::StatusOr<MeshChoice> ChooseMesh(const TrainOptions& options, const RanksPlace& place);

// `options` with what was chosen.
TrainOptions WithChoice(TrainOptions options, const MeshChoice& choice);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_MESH_CHOICE_H_
