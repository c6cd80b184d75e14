// The arguments of an engine, and everything derived from them alone. All parts of the engine read
// it. None changes it after the engine's creation.
#ifndef GEMINID_CLIENT_ZERO_OPTIONS_ENGINE_SETUP_H_
#define GEMINID_CLIENT_ZERO_OPTIONS_ENGINE_SETUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/layout.h"
#include "client/zero/core/staying.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::zero {

struct EngineSetup {
  EngineSetup(Session* of_session, collectives::Communicator* ranks,
              std::vector<Parameter> of_model, Options given);

  // INVALID_ARGUMENT names the option or the parameter and says what to do. UNIMPLEMENTED: there is
  // no kernel for the request.
  absl::Status Check() const;
  // INVALID_ARGUMENT for invalid learning rates, decays, norms or groups of a step.
  absl::Status CheckStep(const Engine::StepInput& input) const;
  absl::Status CheckId(ParameterId id) const;
  // Lays the parameters out in chunks.
  absl::Status MakeLayout();
  // RESOURCE_EXHAUSTED: the system gives no thread.
  absl::StatusOr<std::unique_ptr<kernels::ThreadPool>> MakeUpdatePool() const;

  uint32_t ChunkOf(ParameterId id) const { return layout.tensors[static_cast<uint32_t>(id)].chunk; }
  // The names of the parameters in a chunk of the layout, for messages.
  std::string NamesIn(uint32_t chunk) const;

  bool updates_in_backward() const { return options.update == UpdateTime::kInBackward; }
  // Some of the state is on disk, or may be later.
  bool has_disk() const { return !options.state_disk.folders.empty(); }
  // No state moves to the device: only the host can sum it up over tensors, or update it.
  bool state_stays(bool any_on_disk) const;
  // Weights are gathered only once between two updates.
  bool weights_stay() const { return options.stage != Stage::kWeights; }
  StayingWeights staying_weights() const {
    return {.chunks = layout.chunks.size(), .unused_too = options.micro_batch_parts > 1};
  }
  // Whole gradients are added up over the micro-batches of a step, and reduced once at its end.
  bool sums_gradients() const { return options.stage == Stage::kState && options.accumulate > 1; }
  // For steps with a fixed number of micro-batches: each part has `accumulate` of them.
  int MicroBatchesOfStep() const { return options.accumulate * options.micro_batch_parts; }

  // Runs `work`, for which the trainer's thread waits, and counts the wait under `cause`.
  template <typename Work>
  auto Waited(StallCause cause, const Work& work) const {
    const absl::Time began = clock();
    auto result = work();
    session->AddStall(cause, clock() - began);
    return result;
  }

  Session* const session;
  collectives::Communicator* const communicator;
  const std::vector<Parameter> parameters;
  const Options options;
  const std::function<absl::Time()> clock;  // also called on threads of streams
  Layout layout;
  std::vector<uint64_t> elements;  // by tensor
  // By chunk on the device, chunks of weights first, then those of separate gradients: the
  // session's chunk, and its index among the device's views. No views: `views` is empty.
  std::vector<ChunkId> gathered;
  std::vector<uint64_t> views;

 private:
  absl::Status CheckNotFinite() const;
  absl::Status CheckStateDisk() const;
  absl::Status CheckStage() const;
  absl::Status CheckAllRanks() const;
  absl::Status CheckUpdatesInBackward() const;
  absl::Status CheckParameter(const Parameter& parameter) const;
  absl::Status CheckMatrix(const Parameter& parameter) const;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_OPTIONS_ENGINE_SETUP_H_
