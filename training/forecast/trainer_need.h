// The least device memory that geminid-train needs. The trainer names it in the error for too
// little memory; geminictl plan prints it beforehand. Pure.
#ifndef GEMINID_TRAINING_FORECAST_TRAINER_NEED_H_
#define GEMINID_TRAINING_FORECAST_TRAINER_NEED_H_

#include <cstddef>
#include <cstdint>

#include "training/forecast/costs.h"
#include "training/forecast/model.h"

namespace geminid::forecast {

// Columns that the trainer's operators work on at a time on the host.
inline constexpr std::uint64_t kTrainerAttentionColumns = 128;
inline constexpr std::uint64_t kTrainerMlpColumns = 256;

// The shape of a trainer's model, or of a part of the model.
struct WorkspaceShape {
  std::uint64_t layers = 0;
  std::uint64_t hidden = 0;
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t intermediate = 0;
  std::uint64_t vocabulary = 0;  // or classes
  std::uint64_t experts = 0;    // 0: no router
  bool norms_heads = false;     // of queries and keys, so that all heads are computed at once
  bool parallel_block = false;  // attention and MLP have the same input
  bool masks = false;           // the output layer only reads masked tokens
  bool classifies = false;      // it only reads a token of each sequence
  std::uint64_t patch_elements = 0;  // of an image's patch that becomes a token; 0: no images
  std::uint64_t whole_sequence = 0;  // the sequence that the batch has a piece of; 0: no pieces
  std::uint64_t element_bytes = kElementBytes;
  Batch batch = {};
  std::uint64_t attention_columns = kTrainerAttentionColumns;
  std::uint64_t mlp_columns = kTrainerMlpColumns;
  std::size_t threads = 1;
  // A library may compute attention on a GPU. It takes workspace and, before the first step, a test
  // (kernels/model/attention/attention_library_cuda.h).
  bool on_gpu = false;

  // All columns at once, as on a GPU: each slice would read the other matrix again, and the GPU
  // would be idle between slices.
  void UseGpu() {
    attention_columns = heads * head_dim;
    mlp_columns = intermediate;
    on_gpu = true;
  }
};

// The shape of a whole model, without its batch and device.
WorkspaceShape WorkspaceShapeOf(const Model& model);

// On a GPU the stride of a row of logits is a multiple of this, in elements: 128 bytes of bf16.
inline constexpr std::uint64_t kLogitAlignment = 64;

// Slightly more than the trainer's workspace takes if activations are recomputed.
std::uint64_t TrainerWorkspaceBytes(const WorkspaceShape& shape);

// The facts about one rank besides its model.
struct TrainerNeed {
  std::uint64_t workspace_bytes = 0;
  std::uint64_t element_bytes = kElementBytes;
  std::uint64_t sharing_ranks = 1;  // that shard the state of the model
  bool sums_gradients = false;      // over several micro-batches
  bool weights_stay = false;        // on the device between operators
  bool state_on_device = false;     // the optimizer's
  std::uint64_t state_bytes = 12;   // per element: weight, remainder and the optimizer's arrays
  bool whole_matrices = false;      // layers have whole matrices, as in Muon (StepsWhole)
};

// A size of --device-memory with which the trainer trains, recomputing activations: its workspace,
// and the weights and gradients of its largest operator and of the next one. Rounded up to whole
// MemoryStep, so somewhat more than the least.
std::uint64_t TrainerDeviceBytes(const Model& model, const TrainerNeed& need);

// Whether geminid-train can train this model, known by its name or type.
bool TrainerTrains(const Model& model);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_TRAINER_NEED_H_
