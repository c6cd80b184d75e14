// What an engine was given, and what follows from that alone. All parts of the engine read it, and
// none changes it after the engine's creation.
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

  // INVALID_ARGUMENT names the option or the parameter, and says what to do. UNIMPLEMENTED for what
  // there are no kernels for.
  absl::Status Check() const;
  // INVALID_ARGUMENT where learning rates, decays, norms or groups of a step cannot be.
  absl::Status CheckStep(const Engine::StepInput& input) const;
  absl::Status CheckId(ParameterId id) const;
  // Lays the parameters out in chunks.
  absl::Status MakeLayout();
  // RESOURCE_EXHAUSTED where the system gives no thread.
  absl::StatusOr<std::unique_ptr<kernels::ThreadPool>> MakeUpdatePool() const;

  uint32_t ChunkOf(ParameterId id) const { return layout.tensors[static_cast<uint32_t>(id)].chunk; }
  // The parameters of a chunk of the layout, in words.
  std::string NamesIn(uint32_t chunk) const;

  bool updates_in_backward() const { return options.update == UpdateTime::kInBackward; }
  // Some of the state is on disk, or may be.
  bool has_disk() const { return !options.state_disk.folders.empty(); }
  // Weights are gathered once between updates.
  bool weights_stay() const { return options.stage != Stage::kWeights; }
  StayingWeights staying_weights() const {
    return {.chunks = layout.chunks.size(), .unused_too = options.micro_batch_parts > 1};
  }
  // Gradients are added up over micro-batches, whole, and then reduced.
  bool sums_gradients() const { return options.stage == Stage::kState && options.accumulate > 1; }
  // Where a step has a fixed number of them: each part has `accumulate`.
  int MicroBatchesOfStep() const { return options.accumulate * options.micro_batch_parts; }

  // Does what the trainer's thread waits for, and counts the wait.
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
  const std::function<absl::Time()> clock;  // streams are measured by it too, on their own threads
  Layout layout;
  std::vector<uint64_t> elements;  // by tensor
  // By chunk on the device, those of weights before separate gradients: the session's chunk, and
  // where it is among the device's views; none: there are no views.
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
