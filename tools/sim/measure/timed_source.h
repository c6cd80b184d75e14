// A model's parameters in plain memory, and how long its operators take when nothing is in the way.
#ifndef GEMINID_TOOLS_SIM_MEASURE_TIMED_SOURCE_H_
#define GEMINID_TOOLS_SIM_MEASURE_TIMED_SOURCE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/zero/arena_meter.h"
#include "client/zero/layout.h"
#include "client/zero/recorder.h"
#include "client/zero/workspace.h"
#include "tools/trainer/parameter_source.h"
#include "tools/trainer/parameters.h"

namespace geminid::sim {

// Gives operators what the ZeRO engine would give them, without an engine: every parameter is there
// at once. Notes per moment what the engine's recorder notes. Weights are bf16. One thread.
class TimedSource final : public trainer::ParameterSource {
 public:
  // All outlive this. The weights are set as a new model's are.
  TimedSource(const trainer::ModelParameters& parameters, const zero::Layout& layout,
              uint64_t workspace_bytes);

  absl::Status BeginMicroBatch() override;
  absl::StatusOr<std::unique_ptr<trainer::ParameterUse>> Use(
      zero::Pass pass, std::span<const zero::ParameterId> parameters) override;
  zero::Workspace& workspace() override { return workspace_; }

  // The micro-batch is over: what it did, with the seconds of each moment.
  std::vector<zero::Moment> TakeMoments();

 private:
  class TimedUse;
  // Memory as an arena has it: at the start of a page.
  struct FreePages {
    void operator()(std::byte* bytes) const;
  };
  using Pages = std::unique_ptr<std::byte[], FreePages>;
  static Pages MakePages(uint64_t bytes);
  static Pages MakeWeights(const trainer::ParameterSpec& spec);
  using Clock = std::chrono::steady_clock;

  void LeaveMoment();
  void GradientWritten(uint32_t parameter);
  void Finish(const std::vector<uint32_t>& chunks);

  const trainer::ModelParameters& parameters_;
  const zero::Layout& layout_;
  std::vector<Pages> weights_;    // by parameter
  std::vector<Pages> gradients_;  // by parameter
  std::vector<int> written_;      // by parameter, in this micro-batch
  std::vector<bool> reduced_;     // by chunk
  const Pages memory_;
  zero::ArenaMeter meter_;
  zero::ArenaWorkspace workspace_;
  zero::Recorder recorder_;
  bool in_moment_ = false;
  Clock::time_point began_;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_MEASURE_TIMED_SOURCE_H_
