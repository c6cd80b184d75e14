#include "tools/geminictl/plan/plan_parallel.h"

#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "tools/geminictl/plan/plan_parallel_json.h"
#include "tools/geminictl/plan/plan_parallel_view.h"
#include "training/meshes/compare.h"
#include "training/meshes/placed_choice.h"

namespace geminid::ctl {
namespace {

// Planning is bounded, so that no cluster takes longer than minutes.
constexpr std::uint32_t kRanksPlanned = 4096;
// The ranks of a node if no flag gives their number: those of a DGX.
constexpr std::uint32_t kComparedRanksPerNode = 8;

absl::Status CheckRequest(const PlanRequest& request) {
  if (!request.missing_rates.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--parallel compares times, and rates are unknown: give --hardware, or ",
                     absl::StrJoin(request.missing_rates, ", ")));
  }
  if (request.job.ranks > kRanksPlanned) {
    return absl::InvalidArgumentError(absl::StrCat("--parallel: a cluster of ", request.job.ranks,
                                                   " ranks; at most ", kRanksPlanned,
                                                   " are planned for"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunCompare(const Context& context, const PlanFlags& flags,
                               const PlanRequest& request) {
  if (request.micro_batches > 1) {
    return absl::InvalidArgumentError(
        "--accumulate and --parallel compare do not go together: one pass is compared");
  }
  ComparedAnswer answer = {.model = *request.model, .job = request.job, .notes = request.notes};
  // Compares the given number of ranks, or all numbers of the table on nodes of this size.
  const bool one = !flags.ranks.empty() || !flags.nodes.empty();
  const bool nodes_given = one || !flags.ranks_per_node.empty();
  const int own[] = {static_cast<int>(request.job.ranks)};
  answer.ranks_per_node = nodes_given ? request.job.ranks_per_node() : kComparedRanksPerNode;
  GEMINID_ASSIGN_OR_RETURN(
      answer.grids, parallel::CompareGrids(answer.model, answer.job,
                                           one ? std::span<const int>(own)
                                               : std::span<const int>(parallel::kComparedRanks),
                                           answer.ranks_per_node));
  *context.out << (context.json ? ComparedJson(answer) : ComparedText(answer, context.style));
  return base::kExitOk;
}

}  // namespace

absl::StatusOr<int> RunParallelPlan(const Context& context, const PlanFlags& flags,
                                    const PlanRequest& request) {
  GEMINID_RETURN_IF_ERROR(CheckRequest(request));
  if (flags.parallel == "compare") return RunCompare(context, flags, request);
  ParallelAnswer answer = {.model = *request.model,
                           .job = request.job,
                           .host_is_given = request.host_is_given,
                           .notes = request.notes};
  parallel::ChooseOptions options = {.micro_batches = request.micro_batches};
  GEMINID_ASSIGN_OR_RETURN(const parallel::MeshAxes axes, parallel::ParseMeshAxes(flags.parallel));
  if (!axes.automatic) {
    GEMINID_ASSIGN_OR_RETURN(const parallel::ParsedMesh parsed, parallel::MeshToPlan(axes));
    GEMINID_ASSIGN_OR_RETURN(options.only, parallel::MeshForJob(answer.model, answer.job, parsed));
  }
  answer.only = options.only;
  if (request.placed.has_value()) {
    GEMINID_ASSIGN_OR_RETURN(answer.choice, parallel::ChooseFor(answer.model, *request.placed));
  } else {
    GEMINID_ASSIGN_OR_RETURN(answer.choice, parallel::Choose(answer.model, answer.job, options));
  }
  if (!answer.choice.fits() && options.only.has_value()) {
    GEMINID_ASSIGN_OR_RETURN(answer.nearest,
                             parallel::NearestThatFits(answer.model, answer.job, *options.only));
  }
  *context.out << (context.json ? ParallelJson(answer) : ParallelText(answer, context.style));
  return answer.choice.fits() ? base::kExitOk : base::kExitResourceExhausted;
}

}  // namespace geminid::ctl
