// The runs whose ranks must die, by name: for the test and for the program of one rank.
#ifndef GEMINID_TESTS_CLIENT_ZERO_SUCCESSOR_RUNS_H_
#define GEMINID_TESTS_CLIENT_ZERO_SUCCESSOR_RUNS_H_

#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/client/zero/synthetic_training.h"

namespace geminid::zero {

inline constexpr int kSuccessorRanks = 2;
// The variable with the folder of the disks.
inline constexpr char kSuccessorDisk[] = "GEMINID_SUCCESSOR_DISK";
inline constexpr int kSuccessorSteps = 6;

// In this step, counted from 0, the operator evicts the job of some runs.
inline constexpr int kEvictedStep = 2;
// At the beginning of such a run's name.
inline constexpr std::string_view kEvicted = "evicted ";

// The names and their runs:
// "tight": the arena does not hold the model; "tight adam": the same with an optimizer of the same
// arrays;
// "moved": some state moves to the device after the first step;
// "device": all state lives there;
// "streamed": the device updates state on the host, granule by granule;
// "streamed tight": the same with many slices per granule;
// "lamb", "streamed lamb": an optimizer that needs sums over all ranks;
// "disk": state on two disks; "small on disk": in bf16; "disk lamb", "disk came";
// "some on disk": the state that host memory cannot hold; "disk tight": with a tight arena;
// "disk overflow": its first step is skipped;
// "came": sums and factors;
// "summed": fp32 gradients of two micro-batches; "second", "first": the same in that ZeRO stage;
// "hosts": weights sharded within two hosts of one rank each;
// "one host": within one host of both ranks, which is refused;
// "negative": a negative limit of norms, which is refused before anything else;
// "overflow": one step changes nothing;
// "small", "small moved", "small lamb": state in bf16;
// "muon": whole matrices;
// "evicted device", "evicted moved": the same, but the job must give its device memory back;
// "left out": some steps give some parameters no gradient; their updates are counted;
// "apart", "apart overflow": each rank has its own engine, and both are clipped alike;
// "apart lamb", "apart came": with sums over the tensors of both.
inline SyntheticRun SuccessorRun(const std::string& whole_name) {
  const std::string name =
      whole_name.substr(whole_name.starts_with(kEvicted) ? kEvicted.size() : 0);
  SyntheticRun run;
  run.world_size = kSuccessorRanks;
  run.steps = kSuccessorSteps;
  run.job = "successors";
  run.options.chunk_elements = 16384;
  run.options.clip_norm = 0;
  run.options.state_placement = StatePlacement::kHost;
  run.options.timeout = absl::Seconds(60);
  if (name.ends_with("adam")) run.options.optimizer = AdamOptions{};
  if (name == "tight" || name == "tight adam" || name == "disk tight" || name == "hosts" ||
      name == "one host")
    run.arena_bytes = 320 << 10;
  if (name.starts_with("small")) run.options.state_type = DataType::kBFloat16;
  if (name.ends_with("moved")) {
    run.options.state_placement = StatePlacement::kShare;
    run.options.state_share = 0.5;
    run.arena_bytes = 2 << 20;
  }
  if (name == "device") run.options.state_placement = StatePlacement::kDevice;
  if (name.starts_with("streamed")) run.options.state_placement = StatePlacement::kStreamed;
  if (name == "streamed tight") run.arena_bytes = 320 << 10;
  if (name.starts_with("disk") || name.ends_with("on disk")) {
    run.options.state_placement = StatePlacement::kDisk;
    if (name == "some on disk") run.options.state_placement = StatePlacement::kAuto;
    for (const char* disk : {"/a", "/b"}) {
      run.options.state_disk.folders.push_back(std::getenv(kSuccessorDisk) + std::string(disk));
    }
  }
  if (name.ends_with("lamb")) run.options.optimizer = LambOptions{};
  if (name.ends_with("came")) run.options.optimizer = CameOptions{};
  if (name == "muon") {
    run.options.optimizer = MuonOptions{};
    for (Parameter& parameter : run.model.parameters) {
      parameter.orthogonal = parameter.shape.size() == 2 && parameter.name != "embedding";
    }
  }
  if (name == "summed" || name == "second" || name == "first") run.options.accumulate = 2;
  if (name == "first") run.options.stage = Stage::kState;
  if (name == "second") run.options.stage = Stage::kGradients;
  if (name == "hosts") run.ranks_per_host = 1;
  if (name == "negative") run.options.clip_norm = -1;
  if (name == "one host") run.ranks_per_host = kSuccessorRanks;
  if (name == "left out") {
    for (Parameter& parameter : run.model.parameters) parameter.update_without_gradient = false;
    run.operators_at = [all = run.model.operators](int step) {
      std::vector<std::vector<uint32_t>> used = all;
      if (step % 2 == 1) used.erase(used.begin() + static_cast<ptrdiff_t>(used.size() / 2));
      return used;
    };
  }
  run.apart = name.starts_with("apart");
  if (name == "apart") run.options.clip_norm = 0.5;
  if (name.ends_with("overflow")) {
    run.options.loss_scale = FixedLossScale(1);
    run.overflow_step = name.starts_with("disk") ? 0 : 2;
  }
  return run;
}

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_SUCCESSOR_RUNS_H_
