// The least device memory that geminid-train needs. The trainer names it in the error for too
// little memory, and geminictl plan prints it beforehand. Pure.
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

// Of a trainer's model, or of a part of it.
struct WorkspaceShape {
  std::uint64_t layers = 0;
  std::uint64_t hidden = 0;
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t intermediate = 0;
  std::uint64_t vocabulary = 0;
  std::uint64_t experts = 0;    // 0: no router
  bool norms_heads = false;     // of queries and keys, so that all heads are worked on at a time
  bool parallel_block = false;  // attention and MLP have one input
  bool masks = false;           // the output layer reads the tokens that are masked alone
  std::uint64_t whole_sequence = 0;  // of which the batch's are pieces; 0: they are whole
  std::uint64_t element_bytes = kElementBytes;
  Batch batch = {};
  std::uint64_t attention_columns = kTrainerAttentionColumns;
  std::uint64_t mlp_columns = kTrainerMlpColumns;
  std::size_t threads = 1;
  // There a library may compute attention, which takes workspace and, before the first step, a test
  // (kernels/model/attention/attention_library_cuda.h).
  bool on_gpu = false;

  // All columns at once, as on a GPU: slices would read the other matrix again each, and leave it
  // idle between them.
  void UseGpu() {
    attention_columns = heads * head_dim;
    mlp_columns = intermediate;
    on_gpu = true;
  }
};

// Of a whole model, without its batch and device.
WorkspaceShape WorkspaceShapeOf(const Model& model);

// On a GPU rows of logits lie a multiple of this apart, in elements: 128 bytes of bf16.
inline constexpr std::uint64_t kLogitAlignment = 64;

// More than the trainer's workspace takes where activations are computed again, but not by much.
std::uint64_t TrainerWorkspaceBytes(const WorkspaceShape& shape);

// What is known of one rank beside its model.
struct TrainerNeed {
  std::uint64_t workspace_bytes = 0;
  std::uint64_t element_bytes = kElementBytes;
  std::uint64_t sharing_ranks = 1;  // among which the state of the model is shared out
  bool sums_gradients = false;      // over several micro-batches
  bool weights_stay = false;        // on the device between operators
  bool state_on_device = false;     // the optimizer's
  std::uint64_t state_bytes = 12;   // of an element: weight, remainder and the optimizer's arrays
  bool whole_matrices = false;      // of layers, as Muon has them (Optimizer::StepsWhole)
};

// A size of --device-memory with which the trainer trains, recomputing activations: its workspace,
// and the weights and gradients of its largest operator and of the next one. In whole MemoryStep,
// so somewhat more than the least.
std::uint64_t TrainerDeviceBytes(const Model& model, const TrainerNeed& need);

// Whether geminid-train has models of this kind, by its name or type.
bool TrainerTrains(const Model& model);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_TRAINER_NEED_H_
