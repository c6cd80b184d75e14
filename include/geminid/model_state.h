// The state that training keeps of a model, by parameter and by shard; checkpoints consist of it.
// An engine implements it (geminid/zero.h). So can a trainer that uses several engines, each on
// some of its ranks.
//
// Threads and errors are as for the engine. All ranks make the same calls in the same order.
#ifndef GEMINID_MODEL_STATE_H_
#define GEMINID_MODEL_STATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/data_type.h"
#include "geminid/export.h"
#include "geminid/loss_scaler.h"

namespace geminid::zero {

// A parameter's index in the list of the model's parameters.
enum class ParameterId : uint32_t {};

// The state of each parameter: its value in fp32, and the optimizer's arrays, of which an optimizer
// may have none, one or two. All of it is read and written as fp32.
enum class StateKind : uint8_t { kMaster, kExpAvg, kExpAvgSq };
inline constexpr std::array kStateKinds = {StateKind::kMaster, StateKind::kExpAvg,
                                           StateKind::kExpAvgSq};

// Consecutive elements of a parameter.
struct ShardRange {
  uint64_t offset = 0;
  uint64_t elements = 0;
};

// What a run needs, besides the arrays of its parameters, to continue as if it had never stopped.
struct Progress {
  uint64_t step = 0;     // committed
  uint64_t updates = 0;  // committed steps that changed the weights
  LossScaler::State loss_scaler{};
  std::vector<std::byte> tensor_state{};  // the optimizer's tensor state, if it has any
};

// Where an engine resumed after an earlier process of its rank had died; see Options::resume.
struct Resumed {
  uint64_t step = 0;  // the last one that any rank had committed: all have it now
  // From that step's StepInput, on the rank that had committed it.
  uint64_t data_position = 0;
  std::array<uint64_t, 4> random_state = {};
  bool was_behind = false;        // this rank had committed one step less
  uint64_t granules_updated = 0;  // that this rank still had to update for that step
};

// Receives a snapshot: this rank's parts of every parameter and kind of state, each once, in any
// order, on two threads at a time, not on the caller's. Must neither call the engine nor end it.
class GEMINID_EXPORT SnapshotSink {
 public:
  virtual ~SnapshotSink() = default;
  // An error ends the snapshot, and so does an exception, as CANCELLED. Training waits while this
  // runs, but for at most one granule: the part of a shard that the optimizer updates at once.
  virtual absl::Status Write(ParameterId id, StateKind kind, uint64_t offset,
                             std::span<const float> values) = 0;
};

class GEMINID_EXPORT ModelState {
 public:
  virtual ~ModelState() = default;

  // Sets every parameter: calls `fill` once per parameter, in order, with its whole fp32 tensor to
  // write. Every rank must write the same values. Before the first micro-batch. All ranks must call
  // it, and wait for each other. If `fill` fails, its rank returns that error (CANCELLED for an
  // exception), and the others ABORTED naming the rank. The parameters then have no values:
  // operators, micro-batches and snapshots return FAILED_PRECONDITION until an Initialize succeeds
  // or a checkpoint is restored.
  using Fill = std::function<absl::Status(ParameterId id, std::span<float> values)>;
  virtual absl::Status Initialize(const Fill& fill) = 0;

  // Declares the values unusable, for example after a partial load of a checkpoint. Calls that
  // would use them return FAILED_PRECONDITION with `why`, as after a failed Initialize. All ranks
  // must call it.
  virtual void Invalidate(std::string why) = 0;

  // The fp32 master of one parameter, the same on all ranks. All ranks call it, between steps.
  virtual absl::StatusOr<std::vector<float>> ReadParameter(ParameterId id) = 0;

  // --- by shards ---

  // This rank's ranges of a parameter, in order. The other ranks have the rest.
  virtual std::vector<ShardRange> ShardOf(ParameterId id) const = 0;
  // Whether a parameter has this kind of state; frozen ones have only their value.
  virtual bool HasState(ParameterId id, StateKind kind) const = 0;
  // The type of the optimizer's arrays (Options::state_type). Values of theirs that are read or
  // handed out are exact in this type; values that are written are rounded to it, to nearest.
  virtual DataType state_type() const = 0;
  // The optimizer that made the state, by Name(const Optimizer&).
  virtual const char* optimizer_name() const = 0;

  // Reads elements of this rank's shard in fp32, as the last Step left them. With
  // UpdateTime::kInBackward between steps only. INVALID_ARGUMENT if a part is not in the shard.
  virtual absl::Status ReadShard(ParameterId id, StateKind kind, uint64_t offset,
                                 std::span<float> values) = 0;
  // Sets elements, and first waits for a snapshot that reads them. If one rank writes, all must: a
  // rank that has none of the parameter passes no values. This also drops copies of the weights on
  // devices, which must happen on all ranks.
  virtual absl::Status WriteShard(ParameterId id, StateKind kind, uint64_t offset,
                                  std::span<const float> values) = 0;

  // --- of the run ---

  // Continues from `progress`, with the state that was written. Between steps, alike on all ranks.
  virtual absl::Status Restore(const Progress& progress) = 0;
  // The progress after the last Step. When it may be called: as ReadShard.
  virtual absl::StatusOr<Progress> GetProgress() = 0;

  // Begins to hand the state of the last Step to `sink` while training continues. Between steps;
  // one snapshot at a time. WaitSnapshot returns when the last part was handed out, or at once if
  // no snapshot was begun. Its error is the sink's or the engine's, or DEADLINE_EXCEEDED if nothing
  // was handed out for Options::timeout.
  virtual absl::Status StartSnapshot(std::shared_ptr<SnapshotSink> sink) = 0;
  virtual absl::Status WaitSnapshot() = 0;

  // nullopt: the run began from scratch.
  virtual std::optional<Resumed> resumed() const = 0;

  // Returns when all ranks have called it with the same words for what they do next, such as
  // "saving a checkpoint". INVALID_ARGUMENT, on all ranks and final, if a rank uses weights
  // instead; it says which rank called what. The engine waits for Options::timeout at most. A state
  // without ranks of its own returns at once.
  virtual absl::Status Meet(std::string_view /*words*/) { return absl::OkStatus(); }

 protected:
  ModelState() = default;
};

}  // namespace geminid::zero

#endif  // GEMINID_MODEL_STATE_H_
