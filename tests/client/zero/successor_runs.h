// The runs whose ranks are made to die: by name, for the test and for the program of one rank.
#ifndef GEMINID_TESTS_CLIENT_ZERO_SUCCESSOR_RUNS_H_
#define GEMINID_TESTS_CLIENT_ZERO_SUCCESSOR_RUNS_H_

#include <cstdlib>
#include <string>

#include "tests/client/zero/synthetic_training.h"

namespace geminid::zero {

inline constexpr int kSuccessorRanks = 2;
// The variable that names the folder with the disks.
inline constexpr char kSuccessorDisk[] = "GEMINID_SUCCESSOR_DISK";
inline constexpr int kSuccessorSteps = 6;

// "tight": an arena that does not hold the model; "moved": some state goes to the device after the
// first step; "device": all of it lives there; "streamed": it is updated there, granule by granule;
// "streamed tight": in an arena in which granules have many slices; "lamb", "streamed lamb": an
// optimizer that needs sums of all ranks; "disk": state on two disks; "small on disk": in bf16;
// "disk lamb", "disk came"; "some on disk": what host memory does not hold; "disk tight": with a
// tight arena; "disk overflow": whose first step is skipped; "came": and factors; "summed": fp32
// gradients of two micro-batches; "second": these in ZeRO's second stage; "first": in its first;
// "hosts": weights sharded within two hosts of a rank each; "one host": within one of both ranks,
// which is refused; "negative": with a limit of norms that is refused before anything else;
// "overflow": a step that changes nothing; "small", "small moved", "small lamb": state in bf16;
// "muon": matrices that are whole; "left out": parameters without a gradient in some steps, whose
// updates are counted each; "apart", "apart overflow": ranks with engines of their own, which are
// clipped alike; "apart lamb", "apart came": whose sums are of the tensors of both.
inline SyntheticRun SuccessorRun(const std::string& name) {
  SyntheticRun run;
  run.world_size = kSuccessorRanks;
  run.steps = kSuccessorSteps;
  run.job = "successors";
  run.options.chunk_elements = 16384;
  run.options.clip_norm = 0;
  run.options.state_placement = StatePlacement::kHost;
  run.options.timeout = absl::Seconds(60);
  if (name == "tight" || name == "disk tight" || name == "hosts" || name == "one host")
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
