#include "training/settings/mesh_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "training/meshes/axes.h"
#include "training/meshes/choose.h"
#include "training/meshes/placed_choice.h"

namespace geminid::trainer {
namespace {

// Whether the trainer can do on the mesh what is asked of it. Whole sequences in a micro-batch, and
// how many micro-batches a schedule takes, are the planner's to see to.
bool Trains(const TrainOptions& options, const parallel::MeshSpec& mesh) {
  constexpr int kEnough = 2;
  TrainOptions on_mesh = options;
  auto parsed = ParseParallel(parallel::ToString(mesh));
  if (!parsed.ok()) return false;
  on_mesh.parallel = *std::move(parsed);
  on_mesh.zero.stage = static_cast<zero::Stage>(on_mesh.parallel.zero);
  if (mesh.in_halves()) on_mesh.zero.accumulate = std::max(kEnough, options.zero.accumulate);
  return CheckParallel(on_mesh).ok();
}

const char* ActivationsOf(Activations activations) {
  // What is offloaded takes the room that a plan leaves it.
  if (activations == Activations::kAuto || activations == Activations::kOffload) return "planned";
  return activations == Activations::kRecompute ? "recomputed" : "kept";
}

std::string InWords(const parallel::PlannedMesh& planned) {
  return absl::StrFormat("%s with %d micro-batch%s, %.3g ms a step",
                         parallel::ToString(planned.setting.mesh), planned.setting.micro_batches,
                         planned.setting.micro_batches == 1 ? "" : "es",
                         1e3 * planned.step_seconds);
}

// The first, and the best that is another mesh.
std::string WhyOf(const parallel::Choice& choice) {
  const parallel::PlannedMesh& chosen = choice.planned.front();
  if (!choice.fits()) {
    return absl::StrCat(parallel::ToString(chosen.setting.mesh),
                        " lacks least; nothing is predicted to fit");
  }
  std::string words = InWords(chosen);
  for (const parallel::PlannedMesh& other : choice.planned) {
    if (!other.fits || other.setting.mesh == chosen.setting.mesh) continue;
    return absl::StrCat(words, " as predicted; next ", InWords(other));
  }
  return absl::StrCat(words, " as predicted");
}

bool Keeps(const parallel::Setting& setting) {
  return setting.activations == forecast::Activations::kKeep;
}

std::vector<PlannedRow> RowsOf(const parallel::Choice& choice) {
  std::vector<PlannedRow> rows;
  for (const parallel::PlannedMesh& planned : choice.planned) {
    if (rows.size() == kRowsOfChoice) break;
    rows.push_back(
        {.mesh = parallel::ToString(planned.setting.mesh),
         .micro_batches = planned.setting.micro_batches,
         .keeps_activations = Keeps(planned.setting),
         .fits = planned.fits,
         .step_seconds = planned.step_seconds,
         .received_bytes = planned.fits ? planned.received_bytes : planned.cost.received_bytes,
         .device_bytes = planned.device_bytes});
  }
  return rows;
}

// INVALID_ARGUMENT as ParseParallel.
absl::StatusOr<MeshChoice> MakeChoice(const TrainOptions& options, const std::string& mesh,
                                      uint64_t micro_batches) {
  const uint64_t sequences = options.batch * static_cast<uint64_t>(options.zero.accumulate);
  MeshChoice choice = {.mesh = mesh,
                       .batch = sequences / micro_batches,
                       .accumulate = static_cast<int>(micro_batches)};
  GEMINID_ASSIGN_OR_RETURN(choice.parallel, ParseParallel(mesh));
  return choice;
}

}  // namespace

forecast::Model ForecastModelOf(const ModelConfig& config) {
  forecast::Model model = {config, Name(config.family)};
  model.lora_rank = 0;
  return model;
}

parallel::PlacedRun PlacedRunOf(const TrainOptions& options, const RanksPlace& place) {
  parallel::PlacedRun run = {
      .place = place,
      .element_bytes = zero::SizeOf(options.zero.data_type),
      .sequences = options.batch * static_cast<uint64_t>(options.zero.accumulate),
      .sequence_length = options.model.context,
      .least_micro_batches = static_cast<uint64_t>(options.zero.accumulate),
      .optimizer = Name(options.zero.optimizer),
      .small_state = options.zero.state_type == zero::DataType::kBFloat16,
      .activations = ActivationsOf(options.activations)};
  const forecast::Model model = ForecastModelOf(options.model);
  for (const parallel::MeshSpec& mesh : parallel::MeshesOf(place.ranks)) {
    if (CheckMesh(model, options.model.context, mesh).ok() && Trains(options, mesh)) {
      run.meshes.push_back(parallel::ToString(mesh));
    }
  }
  return run;
}

absl::StatusOr<MeshChoice> ChooseMesh(const TrainOptions& options, const RanksPlace& place) {
  if (options.model.lora_rank > 0) {
    return parallel::RefuseParallel(
        "auto does not know what adapters cost; name the axes, or leave --parallel out");
  }
  const parallel::PlacedRun run = PlacedRunOf(options, place);
  GEMINID_ASSIGN_OR_RETURN(const parallel::Choice found,
                           parallel::ChooseFor(ForecastModelOf(options.model), run));
  const parallel::Setting& setting = found.planned.front().setting;
  GEMINID_ASSIGN_OR_RETURN(MeshChoice choice, MakeChoice(options, parallel::ToString(setting.mesh),
                                                         setting.micro_batches));
  if (options.activations == Activations::kAuto) choice.keeps_activations = Keeps(setting);
  choice.why = WhyOf(found);
  choice.rows = RowsOf(found);
  choice.run = run;
  return choice;
}

std::string WordsOf(const MeshChoice& choice) {
  const char* const keeps = !choice.keeps_activations   ? "planned"
                            : *choice.keeps_activations ? "kept"
                                                        : "recomputed";
  return absl::StrJoin(
      {choice.mesh, absl::StrCat(choice.accumulate), std::string(keeps), choice.why}, "\n");
}

absl::StatusOr<MeshChoice> ChoiceFrom(const TrainOptions& options, const std::string& words) {
  const std::vector<std::string> lines = absl::StrSplit(words, absl::MaxSplits('\n', 3));
  uint64_t micro_batches = 0;
  if (lines.size() != 4 || !absl::SimpleAtoi(lines[1], &micro_batches) || micro_batches == 0) {
    return absl::InternalError("rank 0 chose a mesh in words that cannot be read");
  }
  GEMINID_ASSIGN_OR_RETURN(MeshChoice choice, MakeChoice(options, lines[0], micro_batches));
  if (lines[2] != "planned") choice.keeps_activations = lines[2] == "kept";
  choice.why = lines[3];
  return choice;
}

TrainOptions WithChoice(TrainOptions options, const MeshChoice& choice) {
  options.parallel = choice.parallel;
  options.zero.stage = static_cast<zero::Stage>(choice.parallel.zero);
  options.batch = choice.batch;
  options.zero.accumulate = choice.accumulate;
  return options;
}

}  // namespace geminid::trainer
