// What training keeps of a model, by parameter and by shard: what checkpoints are made of. An
// engine has it (geminid/zero.h), and so can whoever trains a model with several engines, each on
// some of its ranks.
//
// Threads and errors are the engine's. All ranks make the same calls in the same order.
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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/data_type.h"
#include "geminid/export.h"
#include "geminid/loss_scaler.h"

namespace geminid::zero {

// A parameter's place in the list of the model's parameters.
enum class ParameterId : uint32_t {};

// What training keeps of each parameter: the value itself, in fp32, and the optimizer's arrays, of
// which an optimizer may have none or one. All of it is read and written as fp32.
enum class StateKind : uint8_t { kMaster, kExpAvg, kExpAvgSq };
inline constexpr std::array kStateKinds = {StateKind::kMaster, StateKind::kExpAvg,
                                           StateKind::kExpAvgSq};

// Consecutive elements of a parameter.
struct ShardRange {
  uint64_t offset = 0;
  uint64_t elements = 0;
};

// What a run needs, beside the arrays of its parameters, to go on as if it had never stopped.
struct Progress {
  uint64_t step = 0;     // committed
  uint64_t updates = 0;  // of them those that changed the weights
  LossScaler::State loss_scaler{};
  std::vector<std::byte> tensor_state{};  // the optimizer's numbers per tensor, if it has any
};

// Where an engine went on that took the place of one whose process died; see Options::resume.
struct Resumed {
  uint64_t step = 0;  // the last one that any rank had committed: all have it now
  // As StepInput had them in that step, on the rank that had committed it.
  uint64_t data_position = 0;
  std::array<uint64_t, 4> random_state = {};
  bool was_behind = false;        // this rank had committed one step less
  uint64_t granules_updated = 0;  // that this rank still had to update for that step
};

// Receives a snapshot: this rank's parts of every parameter and kind of state, each once, in any
// order, from two threads at a time, neither of them the caller's. Must not call the engine.
class GEMINID_EXPORT SnapshotSink {
 public:
  virtual ~SnapshotSink() = default;
  // An error ends the snapshot. Training waits while this runs, but never for more than one
  // granule: the part of a shard that the optimizer updates at once.
  virtual absl::Status Write(ParameterId id, StateKind kind, uint64_t offset,
                             std::span<const float> values) = 0;
};

class GEMINID_EXPORT ModelState {
 public:
  virtual ~ModelState() = default;

  // Sets every parameter: `fill` is called once per parameter, in order, with its whole fp32 tensor
  // to write. Every rank must write the same values. Before the first micro-batch; all ranks must
  // call it, and wait for each other. After an error of `fill` its rank returns that error, and the
  // others ABORTED naming the rank. The parameters have no values then: operators, micro-batches
  // and snapshots are FAILED_PRECONDITION until an Initialize succeeds or a checkpoint is restored.
  using Fill = std::function<absl::Status(ParameterId id, std::span<float> values)>;
  virtual absl::Status Initialize(const Fill& fill) = 0;

  // Says that the values are of no use, as those of a checkpoint that was loaded in part. What
  // would use them is FAILED_PRECONDITION with the words of `why`, as after a failed Initialize.
  // All ranks must call it.
  virtual void Invalidate(std::string why) = 0;

  // The fp32 master of one parameter, the same on all ranks. All ranks must call it, between steps.
  virtual absl::StatusOr<std::vector<float>> ReadParameter(ParameterId id) = 0;

  // --- by shards ---

  // The parts of a parameter that this rank keeps, in order. Its other ranks keep the rest.
  virtual std::vector<ShardRange> ShardOf(ParameterId id) const = 0;
  // Whether a parameter has this kind of state; frozen ones have their value alone.
  virtual bool HasState(ParameterId id, StateKind kind) const = 0;
  // In which the optimizer's arrays are kept (Options::state_type). All values of theirs that are
  // read or handed out are of this type; those that are written are rounded to it, to nearest.
  virtual DataType state_type() const = 0;

  // Elements of this rank's shard, in fp32. Between steps; waits for the update. INVALID_ARGUMENT
  // for a range that is not wholly in the shard, and nothing is read or written.
  virtual absl::Status ReadShard(ParameterId id, StateKind kind, uint64_t offset,
                                 std::span<float> values) = 0;
  // Sets them, and waits for a snapshot that reads them. All ranks must write if one does: a rank
  // that keeps nothing of the parameter writes no values. Copies of the weights on the device are
  // dropped with it, which must happen on all ranks.
  virtual absl::Status WriteShard(ParameterId id, StateKind kind, uint64_t offset,
                                  std::span<const float> values) = 0;

  // --- of the run ---

  // Goes on from there, with the state that was written. Between steps, the same on all ranks.
  virtual absl::Status Restore(const Progress& progress) = 0;
  // As of the last Step. Between steps.
  virtual absl::StatusOr<Progress> GetProgress() = 0;

  // Begins to hand the state of the last Step to `sink`, while training goes on. Between steps; one
  // snapshot at a time. WaitSnapshot returns when the last part was handed out; at once when none
  // was begun. Its error is the sink's or the engine's; DEADLINE_EXCEEDED when nothing was handed
  // out for Options::timeout.
  virtual absl::Status StartSnapshot(std::shared_ptr<SnapshotSink> sink) = 0;
  virtual absl::Status WaitSnapshot() = 0;

  // Nothing: it began anew.
  virtual std::optional<Resumed> resumed() const = 0;

 protected:
  ModelState() = default;
};

}  // namespace geminid::zero

#endif  // GEMINID_MODEL_STATE_H_
