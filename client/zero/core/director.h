// The engine's decisions: which chunks to gather, reduce and drop, operator by operator. Pure:
// calls say what the program does, and return moves. All ranks decide alike, because no input
// differs between ranks: no time, no place that a rank chose for itself, no workspace.
//
//                    +----------------- End ------------------+
//                    v                                        |
//   IDLE --Begin--> SAMPLING (no plan) --------------------->-+
//     |   \-Begin-> FOLLOWING (a plan) --operators differ--> DEVIATED
//     |
//     +--Evaluate--> EVALUATING_BY_PLAN --operators differ--> EVALUATING
//
// Evaluation may begin in any state, and returns to it. A micro-batch without a plan runs on
// demand: an operator's chunks are gathered when it begins, and unused chunks are dropped. A plan
// is followed while each operator needs at most what the plan has there, and all places that the
// plan is about to fill are free. So no move ever waits for an operator that is still open.
//
// If a plan has homes for all chunks, weights stay at home until a step changes them or their
// gradient takes their place. That holds on and off the plan, in training and in evaluation.
#ifndef GEMINID_CLIENT_ZERO_CORE_DIRECTOR_H_
#define GEMINID_CLIENT_ZERO_CORE_DIRECTOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "client/zero/core/evaluation_sample.h"
#include "client/zero/core/move.h"
#include "client/zero/core/plan_backoff.h"
#include "client/zero/core/planned_run.h"
#include "client/zero/core/recorder.h"

namespace geminid::zero {

class Director {
 public:
  enum class State {
    kIdle,              // between micro-batches
    kSampling,          // in a micro-batch without a plan
    kFollowing,         // in a micro-batch by the plan
    kDeviated,          // in a micro-batch that left its plan
    kEvaluating,        // on demand
    kEvaluatingByPlan,  // by evaluation's own plan
  };

  struct Chunk {
    uint64_t bytes = 0;        // of its extent
    bool is_gradient = false;  // the separate gradient of a chunk: opened, not gathered
    // Weights that stay on the device after their gather until a step changes them, on and off the
    // plan: those of ZeRO's stages that do not shard weights.
    bool stays = false;
    bool changes = true;  // with each step
    // The ranks of a host that gather the chunk store a copy of it together, and gather it again
    // from that copy until the chunk changes.
    bool copied = false;
  };

  explicit Director(std::vector<Chunk> chunks);

  State state() const { return state_; }
  // True also during an evaluation within a micro-batch.
  bool in_micro_batch() const { return Training() != State::kIdle; }
  bool evaluating() const { return state_ == State::kEvaluating || by_evaluation_plan(); }
  bool following() const { return state_ == State::kFollowing || by_evaluation_plan(); }
  // The plan that is being followed; following() must be true.
  const PlannedRun& followed() const { return by_evaluation_plan() ? *evaluation_ : *training_; }
  // The current moment; between moments the next one. Counted in evaluation's plan if that is
  // followed, else in the micro-batch.
  size_t moment() const { return by_evaluation_plan() ? evaluation_moment_ : moment_; }
  const PlannedRun* training_plan() const { return training_ ? &*training_ : nullptr; }

  // --- what the program does ---

  // Only in kIdle, or during an evaluation that began there.
  Moves BeginMicroBatch();
  // An operator begins and holds the chunks. The operator before it may still be open.
  Moves BeginOperator(bool evaluate, std::span<const uint32_t> chunks);
  // This micro-batch has no more operators: its last moment ends.
  Moves EndOperators();
  // Called once for each chunk of each BeginOperator.
  void Release(uint32_t chunk);
  // A gradient is about to be written outside of any operator: opens an extent of zeros, unless the
  // chunk is there already. `planned`: plans count the chunk among those of the current moment.
  Moves OpenGradient(uint32_t chunk, bool planned);
  // Whether OpenGradient of a planned gradient would begin a new moment.
  bool GradientBeginsMoment(uint32_t chunk) const;
  // An operator may write a gradient over the chunk's weights.
  void NoteOverwritten(uint32_t chunk) { places_[chunk].overwritten = true; }
  // The chunk holds a part of a gradient, so it stays until Reduce.
  void NoteGradient(uint32_t chunk);
  // The chunk's gradient is complete.
  Moves Reduce(uint32_t chunk);
  // The micro-batch is over, including all reductions. No chunk may be held.
  Moves EndMicroBatch();
  // Between micro-batches, before a step: copies of trained weights, on devices and on hosts,
  // become outdated.
  Moves ChangeWeights();
  // Discards all gradients of the micro-batch.
  Moves CancelMicroBatch();

  // --- plans ---

  // How the last complete micro-batch ran.
  enum class Outcome { kSampled, kFollowed, kDeviated };
  Outcome outcome() const { return outcome_; }
  // Chunks that the plan would have loaded, but that were at home when the micro-batch began.
  const std::vector<uint32_t>& there_at_start() const { return there_at_start_; }
  // Whether the last micro-batch should become a plan. If its operators differ from the plan's, the
  // wish for a new plan backs off exponentially while the plans made for it are not followed.
  bool wants_plan() const { return backoff_.wants_plan(); }
  // The recording of the current micro-batch, or of the last one between micro-batches.
  Recorder& recorder() { return evaluating() ? sample_.recorder() : recorder_; }
  const Recorder& training_recorder() const { return recorder_; }

  // Between micro-batches. Chunks that the earlier plan left where this one wants them stay there.
  // Only BeginMicroBatch gathers Chunk::stays: the step may end before that, and change them.
  Moves PutInForce(PlannedRun run);
  // No plan can be made from the recording, or it cannot be followed (MovesHeldChunks). The plan in
  // force stays in force.
  void PlanRefused() { backoff_.WaitLonger(); }

  // After an operator of an evaluation on demand, or at the evaluation's `end`. Returns one round
  // of its operators once they repeat, to make a plan from; empty if there is nothing new. Each
  // further sample needs more rounds than the one before.
  std::vector<Moment> TakeEvaluationSample(bool end);
  // The plan is followed from the next operator if that is the plan's first operator, else from the
  // next evaluation.
  void SetEvaluationPlan(PlannedRun run);
  // The values of weights have changed: drops all copies, on devices and hosts.
  Moves DropAll();

  // --- where chunks are, as all ranks know it ---

  bool OnDevice(uint32_t chunk) const { return places_[chunk].on_device; }
  int holders(uint32_t chunk) const { return places_[chunk].holders; }
  // The device has nothing but weights of the chunk, and all ranks could drop and gather them again
  // at any time. Not for chunks that stay or have copies on hosts: their gathers are counted.
  bool CanGatherAgain(uint32_t chunk) const {
    const Place& place = places_[chunk];
    const Chunk& facts = chunks_[chunk];
    return place.on_device && !place.opened && !place.holds_gradient && !facts.is_gradient &&
           !facts.stays && !facts.copied;
  }
  bool HoldsGradient(uint32_t chunk) const { return places_[chunk].holds_gradient; }
  bool AnythingHeld() const;

 private:
  struct Place {
    bool on_device = false;               // or on its way to the device
    std::optional<uint64_t> offset = {};  // where the plan put the chunk
    int holders = 0;
    bool holds_gradient = false;
    bool parked = false;  // off the device, with its contents stored on the host
    bool opened = false;  // began as zeros, for a gradient; has no weights
    bool overwritten = false;  // an operator may have written a gradient over the weights
    bool copied = false;  // the hosts' copies have the newest weights, or will have by then
    bool idle() const { return on_device && holders == 0 && !holds_gradient; }
  };

  std::optional<uint64_t> HomeOf(uint32_t chunk) const {
    return training_ ? training_->HomeOf(chunk) : std::nullopt;
  }
  // The chunk has weights and lies at its home, which no other chunk will need.
  bool AtHome(uint32_t chunk) const {
    const Place& place = places_[chunk];
    return !place.opened && place.offset.has_value() && place.offset == HomeOf(chunk);
  }

  bool by_evaluation_plan() const { return state_ == State::kEvaluatingByPlan; }
  State Training() const { return evaluating() ? interrupted_ : state_; }

  std::vector<uint32_t> HeldChunks() const;
  std::vector<uint32_t> Required(std::span<const uint32_t> chunks) const;
  void Hold(std::span<const uint32_t> chunks);
  void Load(uint32_t chunk, std::optional<uint64_t> offset, std::optional<uint32_t> due,
            Moves* moves);
  void Drop(uint32_t chunk, Moves* moves);
  bool TakeCopied(uint32_t chunk);
  // Whether chunks that stay (Chunk::stays) are dropped and loaded like all others, or left alone.
  enum class StayingChunks { kAsAll, kNot };
  void DropMisplaced(const std::map<uint32_t, uint64_t>& wanted, Moves* moves,
                     StayingChunks stays = StayingChunks::kAsAll);
  void OnDemand(const std::vector<uint32_t>& required, Moves* moves);

  bool PlaceIsFree(uint64_t begin, uint64_t bytes) const;
  bool CanFollow(const PlannedRun& run, size_t moment, const std::vector<uint32_t>& required) const;
  void IssueLoads(const PlannedRun& run, size_t moment, Moves* moves);
  void DropPlanned(const PlannedRun& run, size_t moment, Moves* moves);
  bool CanRestore(const std::map<uint32_t, uint64_t>& wanted) const;
  void Restore(const PlannedRun& run, size_t moment, Moves* moves,
               StayingChunks stays = StayingChunks::kAsAll);
  void KeepForNext(Moves* moves);
  void NoteThereAtStart();

  void BeginMoment(const std::vector<uint32_t>& required, Moves* moves);
  void LeaveMoment(Moves* moves);
  void BeginEvaluation(const std::vector<uint32_t>& required, Moves* moves);
  void GoOnEvaluating(const std::vector<uint32_t>& required, Moves* moves);
  void EndEvaluation(bool resume, Moves* moves);

  const std::vector<Chunk> chunks_;
  std::vector<Place> places_;
  State state_ = State::kIdle;
  Outcome outcome_ = Outcome::kSampled;
  PlanBackoff backoff_;

  std::optional<PlannedRun> training_;
  std::vector<uint32_t> there_at_start_;
  Recorder recorder_;
  bool in_moment_ = false;
  size_t moment_ = 0;  // of the micro-batch: the current one; between moments the next one

  // Of evaluation:
  State interrupted_ = State::kIdle;  // the state in which evaluation began
  std::optional<PlannedRun> evaluation_;
  size_t evaluation_moment_ = 0;
  EvaluationSample sample_;  // since evaluation runs on demand
  bool at_start_ = false;    // the next operator may be the first one of evaluation's plan
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_DIRECTOR_H_
