// Plans of micro-batches: measures operators, makes plans from measurements, puts them in force,
// and judges after each micro-batch whether its plan still fits. All ranks decide alike.
#ifndef GEMINID_CLIENT_ZERO_STEP_STEP_PLANS_H_
#define GEMINID_CLIENT_ZERO_STEP_STEP_PLANS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/zero/core/director.h"
#include "client/zero/core/gradient_book.h"
#include "client/zero/core/planned_run.h"
#include "client/zero/core/replan.h"
#include "client/zero/options/engine_setup.h"
#include "client/zero/ranks/rank_links.h"
#include "client/zero/residency/residency.h"
#include "client/zero/state/state_placement.h"
#include "client/zero/state/state_store.h"
#include "client/zero/step/operator_meter.h"
#include "client/zero/step/plan_tally.h"
#include "geminid/plan.h"

namespace geminid::zero {

// Not thread-safe.
class StepPlans {
 public:
  // All outlive this object.
  struct Parts {
    RankLinks* links = nullptr;
    Director* director = nullptr;
    Residency* residency = nullptr;
    const StateStore* store = nullptr;
    const GradientBook* book = nullptr;
    // Moves the state of these chunks to the device, once nothing reads or updates it.
    std::function<absl::Status(std::span<const uint32_t> chunks)> move_state;
  };
  StepPlans(const EngineSetup& setup, Parts parts);

  // The plan in force, or null.
  const Plan* plan() const {
    return director_.training_plan() == nullptr ? nullptr : &director_.training_plan()->plan();
  }
  // The trace that the plan was made from.
  const Trace& planned_trace() const { return planned_trace_; }
  const PlanTally& tally() const { return tally_; }
  // The trained chunks in the order in which the next forward pass needs them.
  const std::vector<uint32_t>& update_order() const { return update_order_; }

  // --- measurements of a micro-batch ---

  void BeginMicroBatch(bool first_of_step);
  // EndMicroBatch: the operators and all reductions are over; `number`: in the step.
  void EndOperators();
  absl::Status EndMicroBatch(int number, bool step_ends);
  // A moment begins, on `stream` if not null. EndOnStream: the last moment's work there ends here.
  void BeginMoment(Stream* stream);
  void EndMoment();
  void EndOnStream() { times_.EndOnStream(); }
  // An operator of evaluation begins, or training goes on: evaluation may get a plan of its own.
  absl::Status PlanEvaluation(bool end);
  // Workspace is about to reach so far below the arena's top, or lies outside its reservation.
  void NoteWorkspace(uint64_t extent_bytes);
  void NoteWorkspaceGrew();
  bool workspace_grew() const { return micro_batch_.workspace_grew; }

 private:
  // step_plans.cc: from the sample to the plan
  Trace MakeTrace(const std::vector<Moment>& moments) const;
  std::vector<uint32_t> FirstUseOrder() const;
  void SetUpdateOrder();
  StatePlacementProblem MakeStatePlacementProblem(const Trace& trace) const;
  uint64_t StateBudgetBytes(const StatePlacementProblem& problem) const;
  absl::StatusOr<size_t> CountStateOnDevice(const StatePlacementProblem& problem);
  absl::Status PlaceState(Trace* trace);
  absl::StatusOr<Plan> RequestPlan(const Trace& trace, bool weights_change = true);
  absl::StatusOr<Plan> RequestPlanWithMargin(Trace* trace);
  absl::Status MakePlanFromRecording();
  void PlaceAtHome(const Trace& trace, PlannedRun* run) const;
  absl::Status PutInForce(const Trace& trace, Plan plan);
  PlannedRun RunOf(Plan plan, const Trace& trace) const {
    return PlannedRun(std::move(plan), trace.moments, store_.device_bytes());
  }

  // step_plans_judged.cc: whether the plan still fits
  absl::Duration UpdateStall() const;
  uint64_t PeakExcessBytes() const;
  absl::StatusOr<ReplanCause> JudgePlan(bool step_ends);
  absl::Status PlanIfNeeded(bool step_ends);
  absl::Status TellController();

  const EngineSetup& setup_;
  RankLinks& links_;
  Director& director_;
  Residency& residency_;
  const StateStore& store_;
  const GradientBook& book_;
  const std::function<absl::Status(std::span<const uint32_t> chunks)> move_state_;
  OperatorMeter times_;
  Trace planned_trace_;        // that the plan was made from
  bool state_placed_ = false;  // true after the first plan
  std::vector<uint32_t> update_order_;
  PlanTally tally_;
  struct {
    bool workspace_grew = false;  // beyond the plan's
    bool evaluated = false;
  } micro_batch_;
  std::optional<ReplanController> controller_;   // from the first plan on
  std::vector<uint64_t> first_workspace_bytes_;  // by moment; margins are relative to these
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STEP_STEP_PLANS_H_
