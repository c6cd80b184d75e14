// The engine's decisions: which chunks to gather, reduce and drop, operator by operator. Pure: it
// is told what the program does and answers with moves. Nothing that differs between ranks enters,
// so that all of them decide alike: no time, no place that a rank chose for itself, no workspace.
//
//                    +----------------- End ------------------+
//                    v                                        |
//   IDLE --Begin--> SAMPLING (no plan) --------------------->-+
//     |   \-Begin-> FOLLOWING (a plan) --operators differ--> DEVIATED
//     |
//     +--Evaluate--> EVALUATING_BY_PLAN --operators differ--> EVALUATING
//
// Evaluation may begin in any state, and leads back to it. A micro-batch without a plan is carried
// out on demand: what an operator needs is gathered when it begins, what nobody needs is dropped.
// A plan is followed while each operator needs no more than the plan has there, and all places that
// the plan is about to fill are free. So no move ever waits for an operator that is still open.
//
// Where a plan has homes for all chunks, weights stay at home until a step changes them or their
// gradient takes their place: with the plan or without, in training and in evaluation.
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
    kFollowing,         // in one by the plan
    kDeviated,          // in one that left the plan
    kEvaluating,        // on demand
    kEvaluatingByPlan,  // by evaluation's own plan
  };

  struct Chunk {
    uint64_t bytes = 0;        // of its extent
    bool is_gradient = false;  // the separate gradient of another chunk: opened, not gathered
    // Weights that stay on the device once they were gathered, with a plan or without, until a step
    // changes them: those of ZeRO's stages that do not shard weights.
    bool stays = false;
    bool changes = true;  // with each step
    // The ranks of a host that gather it keep a copy together, and gather it again from that copy
    // until it changes.
    bool copied = false;
  };

  explicit Director(std::vector<Chunk> chunks);

  State state() const { return state_; }
  // Evaluation within a micro-batch included.
  bool in_micro_batch() const { return Training() != State::kIdle; }
  bool evaluating() const { return state_ == State::kEvaluating || by_evaluation_plan(); }
  bool following() const { return state_ == State::kFollowing || by_evaluation_plan(); }
  // The plan that is being followed.
  const PlannedRun& followed() const { return by_evaluation_plan() ? *evaluation_ : *training_; }
  // The current moment, or the next one between moments: of evaluation's plan if that is followed,
  // else of the micro-batch.
  size_t moment() const { return by_evaluation_plan() ? evaluation_moment_ : moment_; }
  const PlannedRun* training_plan() const { return training_ ? &*training_ : nullptr; }

  // --- what the program does ---

  // In kIdle, or evaluating from there.
  Moves BeginMicroBatch();
  // An operator begins, and holds the chunks. The one before it need not have ended.
  Moves BeginOperator(bool evaluate, std::span<const uint32_t> chunks);
  // No more operators in this micro-batch: the last moment is over.
  Moves EndOperators();
  // Once for each BeginOperator and chunk.
  void Release(uint32_t chunk);
  // A gradient is about to be written outside any operator: an extent of zeros, unless the chunk is
  // there already. `planned`: plans shall have it there, as what the current moment uses.
  Moves OpenGradient(uint32_t chunk, bool planned);
  // Whether a planned one begins a moment, which its OpenGradient does then.
  bool GradientBeginsMoment(uint32_t chunk) const;
  // The chunk holds part of a gradient: it stays until Reduce.
  void NoteGradient(uint32_t chunk);
  // Its gradient is complete.
  Moves Reduce(uint32_t chunk);
  // The micro-batch is over, all reductions included. Nothing may be held.
  Moves EndMicroBatch();
  // Between micro-batches: copies of trained weights, on devices and hosts, are about to be of no
  // use.
  Moves ChangeWeights();
  // All gradients of the micro-batch are given up.
  Moves CancelMicroBatch();

  // --- plans ---

  // How the last micro-batch was, once it ended.
  enum class Outcome { kSampled, kFollowed, kDeviated };
  Outcome outcome() const { return outcome_; }
  // Chunks that the micro-batch's plan would have had loaded, and that were at home already.
  const std::vector<uint32_t>& there_at_start() const { return there_at_start_; }
  // Whether the last micro-batch should become a plan. Operators that changed are a reason, which
  // backs off exponentially while the plans that are made for it are not followed.
  bool wants_plan() const { return backoff_.wants_plan(); }
  // What the last micro-batch recorded, or the current one so far.
  Recorder& recorder() { return evaluating() ? sample_.recorder() : recorder_; }
  const Recorder& training_recorder() const { return recorder_; }

  // Between micro-batches. What the plan before left where this one wants it stays. Chunks that
  // stay are gathered by the next BeginMicroBatch: this step may be over, and change them.
  Moves PutInForce(PlannedRun run);
  // No plan can be made of the recording, or it cannot be followed (MovesWhatIsKept). The plan in
  // force stays.
  void PlanRefused() { backoff_.WaitLonger(); }

  // After an operator of an evaluation on demand, or at its `end`: one round of its operators, once
  // they have come round, to make a plan from. Empty if there is nothing new. Each further sample
  // needs more rounds than the one before.
  std::vector<Moment> TakeEvaluationSample(bool end);
  // Followed from the next operator on, if that is the first of the plan, else from the next
  // evaluation on.
  void SetEvaluationPlan(PlannedRun run);
  // The values of weights have changed: no copy is of use, on a device or a host.
  Moves DropAll();

  // --- what is where, as all ranks know it ---

  bool OnDevice(uint32_t chunk) const { return places_[chunk].on_device; }
  int holders(uint32_t chunk) const { return places_[chunk].holders; }
  bool HoldsGradient(uint32_t chunk) const { return places_[chunk].holds_gradient; }
  bool AnythingHeld() const;

 private:
  struct Place {
    bool on_device = false;               // or on its way there
    std::optional<uint64_t> offset = {};  // where the plan put it
    int holders = 0;
    bool holds_gradient = false;
    bool parked = false;  // not on the device, but its contents are kept
    bool opened = false;  // zeros at first, for a gradient: no weights
    bool copied = false;  // the copies are of the newest weights, or will be by then
    bool idle() const { return on_device && holders == 0 && !holds_gradient; }
  };

  std::optional<uint64_t> HomeOf(uint32_t chunk) const {
    return training_ ? training_->HomeOf(chunk) : std::nullopt;
  }
  // Weights that nothing else will need the place of.
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
  // Whether chunks that stay are dropped and loaded here as all others.
  enum class Stays { kAsAll, kNot };
  void DropMisplaced(const std::map<uint32_t, uint64_t>& wanted, Moves* moves,
                     Stays stays = Stays::kAsAll);
  void OnDemand(const std::vector<uint32_t>& required, Moves* moves);

  bool PlaceIsFree(uint64_t begin, uint64_t bytes) const;
  bool CanFollow(const PlannedRun& run, size_t moment, const std::vector<uint32_t>& required) const;
  void IssueLoads(const PlannedRun& run, size_t moment, Moves* moves);
  void DropPlanned(const PlannedRun& run, size_t moment, Moves* moves);
  bool CanRestore(const std::map<uint32_t, uint64_t>& wanted) const;
  void Restore(const PlannedRun& run, size_t moment, Moves* moves, Stays stays = Stays::kAsAll);
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
  size_t moment_ = 0;  // of the micro-batch: the current one, or the next one between moments

  // Evaluation.
  State interrupted_ = State::kIdle;  // where it began
  std::optional<PlannedRun> evaluation_;
  size_t evaluation_moment_ = 0;
  EvaluationSample sample_;  // since evaluation is on demand
  bool at_start_ = false;    // the next operator may be the evaluation plan's first
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_DIRECTOR_H_
