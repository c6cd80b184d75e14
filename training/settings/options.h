// The options of a run: its flags, checked and turned into values.
#ifndef GEMINID_TRAINING_SETTINGS_OPTIONS_H_
#define GEMINID_TRAINING_SETTINGS_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "geminid/checkpoint.h"
#include "geminid/schedule.h"
#include "geminid/types.h"
#include "geminid/zero.h"
#include "training/data/sampling.h"
#include "training/launch/host_file.h"
#include "training/launch/ranks_range.h"
#include "training/logs/progress.h"
#include "training/models/model_config.h"
#include "training/settings/parallel.h"
#include "training/settings/run_description.h"
#include "training/transformer/activations.h"

namespace geminid::trainer {

inline constexpr int kThreadsMax = 1024;  // of a rank

// When the report gets a hash of all weights, for which all ranks gather them.
enum class WeightsHash { kNever, kUnlessStopped, kAlways };

// --accumulate auto or --batch auto: the micro-batches of a step, which follow the gradient noise.
struct AccumulateRange {
  std::string flag{};  // as the user gave it: "--batch auto:8:128"
  uint64_t least = 1;
  uint64_t most = 1;
  double update_cost = 0;  // of an update, as sequences that take the same time; 0: measured
};

struct TrainOptions {
  std::vector<std::string> given{};  // the flags of the command line, by name
  std::vector<std::string> notes{};  // the notes printed about them
  double dropout = 0;                // probability, in training
  std::vector<std::string> frozen;  // patterns of parameters that are not trained
  std::vector<std::string> text;    // paths of text; empty: `shards` or `images`
  std::vector<std::string> shards;  // paths of files of tokens
  std::vector<std::string> images;  // paths of files of images
  double validation_share = 0;      // of the data, held out from its end
  uint64_t validation_every = 100;
  uint64_t validation_batches = 8;
  bool eval_only = false;  // measures the loss of `load`, and trains nothing
  ModelConfig model;
  std::optional<int> ranks;      // unset: as the environment says, else as many as `parallel` needs
  Parallel parallel;             // how the model and the batch are divided among the ranks
  int restarts = 0;              // of all ranks, after one has died
  std::optional<int> min_ranks;  // a death after the last restart leaves so many; unset: all end
  std::optional<int> max_ranks;  // the run's own daemon has room for so many
  std::optional<RanksRange> share{};  // the daemon chooses among these numbers of ranks
  std::vector<HostSlots> hosts;  // to start the ranks on; none: this one
  std::string remote_shell;      // the command that reaches another host
  absl::Duration host_timeout;   // a host that is silent for so long is lost
  std::optional<int> threads;    // of each rank; unset: the processors that it may use
  uint64_t batch = 0;            // sequences of all ranks in one micro-batch
  uint64_t seed = 0;
  Sampling sampling = Sampling::kReplacement;
  uint64_t epochs = 0;        // 0: the schedule has the number of steps; else WithStepsOf sets it
  Schedule schedule;          // of the learning rate, with the number of steps
  bool usual_warmup = false;  // no flag gives the schedule's warm-up
  zero::Options zero;
  // If set, zero.accumulate is for the engine alone and at least 2, so that it has room for sums.
  std::optional<AccumulateRange> follows_noise{};
  std::optional<DeviceIndex> device;            // unset: $GEMINID_DEVICE, else by local rank
  bool wants_gpu = false;                       // other devices are refused
  std::optional<uint64_t> device_memory_bytes;  // per rank; unset: enough for everything
  std::optional<uint64_t> host_memory_bytes;    // of the private daemon; unset: its default
  uint64_t copy_bytes_per_second = 0;           // 0: not paced
  Activations activations = Activations::kAuto;  // what becomes of them until the backward pass
  absl::Duration timeout;
  std::string socket;
  std::string job;
  int priority = 0;              // among the daemon's jobs
  absl::Duration queue_timeout;  // how long to wait for memory that other jobs use
  std::string report;
  WeightsHash weights_hash = WeightsHash::kUnlessStopped;
  std::string log;          // file of a JSON line a step; empty: none
  std::string tensorboard;  // folder of event files; empty: none
  bool stop_on_nan = false;
  std::string save;                     // folder of checkpoints; empty: none
  uint64_t save_every = 0;              // steps; 0: at the end alone
  uint64_t keep = 0;                    // how many of the newest checkpoints stay
  bool resume = false;                  // from the newest in `save`, if there is one
  bool save_over = false;               // in place of another run's checkpoints in `save`
  std::optional<ResumedRun> resumed{};  // what --resume has found
  std::string load;                     // folder of first values; empty: random ones
  std::string export_to;                // folder of the last values; empty: none
  checkpoint::ExportType export_type = checkpoint::ExportType::kFloat32;
  std::optional<ProgressMode> progress;  // unset: as suits stderr
};

// The options of text generation. It uses the values to load, the model, the memory and the
// processes of `run`.
struct GenerateOptions {
  TrainOptions run;
  std::vector<int32_t> prompt;
  uint64_t tokens = 0;     // to generate
  double temperature = 0;  // 0: always the likeliest token
  uint64_t top_k = 0;      // samples from so many of the likeliest tokens; 0: from all
  // Whether keys and values of earlier tokens are cached; unset: if they fit.
  std::optional<bool> kv_cache;
  bool json = false;
};

// "--text", "--shards" or "--images".
const char* DataFlagOf(const TrainOptions& options);

// The sequences of a step over all ranks; with AccumulateRange, of the smallest step.
uint64_t SequencesPerStep(const TrainOptions& options);

// The number of ranks of the run. `launched`: the number that the environment says.
int RanksOf(const TrainOptions& options, int launched);

const char* Name(zero::Placement placement);
const char* Name(zero::DataType data_type);
// The type of the norms' gains and shifts.
zero::DataType NormType(const TrainOptions& options);
const char* Name(zero::UpdateTime update);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_OPTIONS_H_
