// The report of a run as JSON: settings, losses, times, memory and traffic.
#ifndef GEMINID_TRAINING_RUN_REPORT_H_
#define GEMINID_TRAINING_RUN_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "training/data/token_source.h"
#include "training/goodput/advice.h"
#include "training/goodput/follow_noise.h"
#include "training/logs/axis_traffic.h"
#include "training/settings/mesh_choice.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Grows when a field changes its meaning or goes; new fields do not count.
inline constexpr uint64_t kReportSchemaVersion = 1;

// The numbers of one rank, as zero::Statistics defines them.
struct RankReport {
  uint64_t device = 0;
  uint64_t model_state_bytes = 0;
  uint64_t device_state_bytes = 0;
  uint64_t host_bytes = 0;
  uint64_t state_disk_bytes = 0;
  uint64_t device_bytes_limit = 0;
  uint64_t peak_model_bytes = 0;
  uint64_t peak_workspace_bytes = 0;
  uint64_t peak_total_bytes = 0;
  uint64_t host_to_device_bytes = 0;
  uint64_t activation_bytes = 0;  // of that; as many left
  uint64_t activation_place_bytes = 0;
  uint64_t device_to_host_bytes = 0;
  uint64_t transfer_bytes_lower_bound = 0;
  uint64_t received_bytes = 0;
  uint64_t received_within_host_bytes = 0;
  double stall_seconds = 0;
};

// The loss on what is held out, after a step.
struct ValidationLoss {
  uint64_t step = 0;  // done
  double loss = 0;    // the mean over the tokens, or the images
  std::optional<double> accuracy = std::nullopt;  // of a classifier: the share that is right
};

struct Report {
  TrainOptions options;
  DataListing data;
  uint64_t parameters = 0;   // of the whole model
  std::string mesh;          // of the ranks, as "pipeline=2 x data=2 x sequence=1"
  std::string mesh_warning;  // of how it lies on the hosts; mostly empty
  // With --parallel auto. What it was chosen from is known to the start that chose.
  std::optional<MeshChoice> choice;
  uint64_t first_step = 0;     // steps that were done before, by the run that this one goes on
  double load_seconds = 0;     // for what it began with; 0: nothing was loaded
  std::vector<double> losses;  // one per step: the mean over its tokens
  std::vector<double> gradient_norms;  // one per step, before clipping
  std::vector<double> step_seconds;    // one per step, of rank 0
  std::vector<ValidationLoss> validation;
  uint64_t validation_tokens = 0;  // of one measurement
  uint64_t overflowed_steps = 0;
  uint64_t non_finite_losses = 0;
  uint64_t first_non_finite_step = 0;  // counted from 1; 0: none
  std::string ended_by = "steps";      // or the signal, "nan", "endurance" or "data"
  double flops_per_token = 0;          // as FlopsPerToken has it
  bool native_data_type = true;        // the processor multiplies the data type itself
  double final_loss_scale = 1;
  std::string instruction_set;       // of the host, as base::Name has it
  std::string computes_on = "host";  // or the name of rank 0's GPU
  std::string products_by;           // who multiplied matrices on rank 0, in words
  std::string attention_by;          // who computed attention there, likewise
  std::string ranks_exchange_by;     // as the engine's Statistics have it
  std::string layers_add_up_by;      // likewise, of layers that are cut over GPUs; empty: none are
  std::string keys_travel_by;        // likewise, of a ring of GPUs; empty: there is none
  uint64_t registered_bytes = 0;     // of rank 0, as they have it
  uint64_t threads = 1;              // of rank 0
  // Of rank 0's host memory, by its GPU's driver: HostRegistration.
  uint64_t host_bytes_registered = 0;
  uint64_t host_bytes_refused = 0;
  Activations activations = Activations::kRecompute;  // what was done
  uint64_t tokens_per_step = 0;
  uint64_t samples_per_epoch = 0;  // sequences; 0: there are no epochs
  std::vector<std::string> notes;  // of flags without effect and the like, for people
  std::vector<RankReport> ranks;
  std::vector<TrafficRow> traffic;                                     // in the whole run
  std::vector<std::pair<std::string, double>> stall_seconds_by_cause;  // of rank 0
  uint64_t chunks = 0;
  uint64_t chunk_elements = 0;
  uint64_t plans_made = 0;
  std::vector<std::pair<std::string, uint64_t>> replans_by_cause;
  bool everything_fits = false;
  std::string plan_explanation;
  std::optional<BatchAdvice> advice;        // of a run that has ended
  std::optional<AutoBatchReport> following;  // with --accumulate auto; with the newest step
  // Of the fp32 masters of all parameters, in order, little-endian; empty: they were not hashed.
  std::string weights_sha256;
};

// Tokens per second over all ranks, without the first step, which samples and plans.
double TokensPerSecond(const Report& report);
double FlopsPerSecond(const Report& report);
// Of the whole run; with --accumulate auto as many as there will be at its present batch.
uint64_t StepsOf(const Report& report);
// Of all ranks, in the `index`-th step of this start, counted from 0.
uint64_t TokensOfStep(const Report& report, size_t index);
// With the newest step, and those that were done before this start.
uint64_t TokensDone(const Report& report);
// With the newest step; unset: there are no epochs.
std::optional<double> EpochsDone(const Report& report);

std::string ToJson(const Report& report);

// Of --eval-only: the loss of `validation`, if there is one, and what else is known of such a run.
std::string EvaluationJson(const Report& report);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_REPORT_H_
