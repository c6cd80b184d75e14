// Measurements of the ranks and hosts of a run, and what the run needs of its mesh. --parallel auto
// chooses by them, and geminictl plan reads them from a report. Pure.
#ifndef GEMINID_TRAINING_MESHES_PLACE_H_
#define GEMINID_TRAINING_MESHES_PLACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json_writer.h"

namespace geminid::parallel {

// Equal ranks on equal hosts. The speeds are those of one rank while all others work, too.
struct Place {
  int ranks = 1;
  int hosts = 1;                     // with equally many ranks, numbered host by host
  std::uint64_t device_bytes = 0;    // of a rank
  std::uint64_t host_bytes = 0;      // of a host, for training
  double operations_per_second = 0;  // of a rank, in products
  double copied_bytes_per_second = 0;
  double link_bytes_per_second = 0;  // to the device
  // What a rank receives from ranks of its host (peer) and of other hosts (network); and the time
  // of a message.
  double peer_bytes_per_second = 0;
  double peer_message_seconds = 0;
  double network_bytes_per_second = 0;
  double network_message_seconds = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

struct PlacedRun {
  Place place = {};
  std::uint64_t element_bytes = 2;  // of weights and activations
  std::uint64_t sequences = 1;      // of a step, over all ranks
  std::uint64_t sequence_length = 1;
  std::uint64_t least_micro_batches = 1;
  std::string optimizer = {};            // as forecast::FindOptimizer knows it
  bool small_state = false;              // the optimizer's arrays are bf16
  std::string activations = "planned";   // or "recomputed" or "kept"
  std::vector<std::string> meshes = {};  // the meshes that may be chosen: the trainer has them
  friend bool operator==(const PlacedRun&, const PlacedRun&) = default;
};

// Writes a JSON object of these fields.
void WritePlacedRun(base::JsonWriter& json, const PlacedRun& run);
// Reads such an object, or one that has it as "place", as the trainer's report does.
// INVALID_ARGUMENT names what is missing or wrong.
absl::StatusOr<PlacedRun> ReadPlacedRun(const std::string& json);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_PLACE_H_
