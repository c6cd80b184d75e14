#include "training/meshes/choose.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "daemon/planner/tiers/update.h"
#include "geminid/types.h"
#include "training/meshes/axes.h"
#include "training/meshes/sharing.h"
#include "training/nn/parallel/stages/schedule.h"

namespace geminid::parallel {
namespace {

using forecast::Forecast;
using forecast::Job;
using forecast::Model;
using planner::Tier;

// Of the planner's step, what is done once and not with every micro-batch.
double UpdateSeconds(const Forecast& forecast) {
  double seconds = forecast.plan.seconds.optimizer;
  const planner::Decisions& decisions = forecast.plan.decisions;
  for (std::size_t c = 0; c < decisions.optimizer.size(); ++c) {
    if (decisions.optimizer[c] != planner::OptimizerPlace::kDevice) continue;
    const auto cost = planner::CostOfUpdate(forecast.problem.machine, forecast.problem.optimizer[c],
                                            0, planner::OptimizerPlace::kDevice);
    seconds += cost.device;
  }
  return seconds;
}

// A gather and a reduction of each chunk.
forecast::GatherTraffic GatheredOnce(const Forecast& forecast) {
  forecast::GatherTraffic once = {.collectives = 2 * forecast.problem.trace.chunks.size()};
  for (const planner::Chunk& chunk : forecast.problem.trace.chunks) {
    once.bytes += 2 * static_cast<double>(chunk.size_bytes);
  }
  return once;
}

SharedChunks Times(const forecast::GatherTraffic& of, double times) {
  return {.bytes = times * of.bytes, .collectives = times * static_cast<double>(of.collectives)};
}

// Of one micro-batch. In ZBV the second half of a backward pass, too, needs the weights' place, and
// what is not there all the time is gathered for it once more.
forecast::GatherTraffic GatheredIn(const MeshSpec& mesh, const Forecast& forecast) {
  forecast::GatherTraffic gathered = forecast::GatheredOf(forecast.problem, forecast.plan);
  if (!mesh.in_halves()) return gathered;
  const forecast::GatherTraffic once = GatheredOnce(forecast);
  const double bytes = gathered.bytes - once.bytes;
  const std::uint64_t gathers = gathered.collectives - once.collectives;
  gathered.bytes += bytes;
  gathered.gather_bytes += bytes;
  gathered.collectives += gathers;
  gathered.gathers += gathers;
  return gathered;
}

// One stage, planned.
struct PlannedStage {
  Forecast forecast;
  // The plan does, and so do weights that stay on the device or within hosts.
  bool fits = false;
  double pass_seconds = 0;
  double sharing_seconds = 0;       // of each micro-batch
  double sharing_once_seconds = 0;  // of the step, beside that of its first one
  double shared_bytes = 0;
  double shared_once_bytes = 0;
  double update_seconds = 0;
  std::uint64_t staying_bytes = 0;     // of the device, which the plan has not
  std::uint64_t host_shard_bytes = 0;  // of weights that hosts gather once between updates
  double lacking() const {
    double bytes = 0;
    for (const std::uint64_t of : forecast.plan.lacking) bytes += static_cast<double>(of);
    return bytes;
  }
  std::uint64_t device_bytes() const {
    return forecast.plan.tier(Tier::kDevice).peak + staying_bytes;
  }
  std::uint64_t host_bytes() const {
    return forecast.plan.tier(Tier::kHost).peak + host_shard_bytes;
  }
};

// The job with so much less of a device, but for what any plan takes.
Job WithoutBytes(Job job, std::uint64_t bytes) {
  const std::uint64_t least = job.hardware.reserved_bytes + kExtentAlignmentBytes;
  job.hardware.device_bytes =
      std::max(least, job.hardware.device_bytes - std::min(job.hardware.device_bytes, bytes));
  return job;
}

// Part of host memory is a rank's share of the host's weights, from where they come to the device
// again and again.
std::uint64_t ShardWithinHost(std::uint64_t ranks, planner::TierProblem* problem) {
  std::uint64_t bytes = 0;
  for (planner::Chunk& chunk : problem->trace.chunks) {
    chunk.transfer_bytes = chunk.size_bytes / ranks;
    bytes += chunk.transfer_bytes;
  }
  std::uint64_t& left = problem->machine.host_bytes;
  left -= std::min(left, bytes);
  return bytes;
}

absl::StatusOr<PlannedStage> PlanStage(const Model& model, const Job& rank_job,
                                       const Setting& setting, const MeshRankWork& work) {
  const MeshSpec& mesh = setting.mesh;
  PlannedStage stage;
  stage.staying_bytes = StayingBytes(rank_job, setting, work);
  const Job job = WithoutBytes(rank_job, stage.staying_bytes);
  GEMINID_ASSIGN_OR_RETURN(planner::TierProblem problem, forecast::MakeProblem(model, job, work));
  const std::uint64_t host_bytes = problem.machine.host_bytes;
  if (GathersWithinHosts(mesh, rank_job)) {
    stage.host_shard_bytes =
        ShardWithinHost(static_cast<std::uint64_t>(SharingRanksOfHost(mesh, rank_job)), &problem);
  }
  GEMINID_ASSIGN_OR_RETURN(
      stage.forecast, forecast::MakeForecast(std::move(problem), job, rank_job.batch.tokens()));
  if (!stage.forecast.fits()) return stage;
  const forecast::GatherTraffic planned = GatheredIn(mesh, stage.forecast);
  Sharing in_pass = SharingOf(mesh, rank_job, planned, setting.micro_batches), in_step;
  stage.fits = stage.host_shard_bytes <= host_bytes;
  if (mesh.zero != 3 && mesh.sharing_ranks() > 1) {
    const forecast::GatherTraffic once = GatheredOnce(stage.forecast);
    stage.fits = planned.bytes == once.bytes;
    const SharingTurns turns = TurnsOf(setting);
    in_pass = {.over_all = Times(once, turns.in_pass / 2), .within_host = {}};
    in_step = {.over_all = Times(once, turns.in_step / 2), .within_host = {}};
  }
  stage.sharing_seconds = SharingSeconds(mesh, rank_job, in_pass);
  stage.sharing_once_seconds = SharingSeconds(mesh, rank_job, in_step);
  stage.shared_bytes = SharedBytes(mesh, rank_job, in_pass);
  stage.shared_once_bytes = SharedBytes(mesh, rank_job, in_step);
  stage.update_seconds = UpdateSeconds(stage.forecast);
  stage.pass_seconds = stage.forecast.plan.seconds.step - stage.update_seconds;
  return stage;
}

// Stages that ask the planner the same.
struct StageKey {
  std::uint64_t layers;
  double in_flight;
  bool embeds, outputs;
  friend bool operator==(const StageKey&, const StageKey&) = default;
};

class MeshPlanner {
 public:
  MeshPlanner(const Model& model, const Job& rank_job, const Setting& setting)
      : model_(model), rank_job_(rank_job), setting_(setting) {}

  absl::StatusOr<PlannedMesh> Run() {
    planned_.setting = setting_;
    GEMINID_ASSIGN_OR_RETURN(planned_.cost, CostOfRank(model_, rank_job_, setting_));
    planned_.fits = true;
    std::vector<StageKey> seen;
    GEMINID_ASSIGN_OR_RETURN(const std::vector<Stage> stages, Stages());
    for (const Stage& stage : stages) {
      const StageKey key = {stage.layers.layers, stage.in_flight, stage.layers.embeds,
                            stage.layers.outputs};
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
      seen.push_back(key);
      GEMINID_RETURN_IF_ERROR(Add(stage));
    }
    if (planned_.fits) GEMINID_RETURN_IF_ERROR(Finish());
    return std::move(planned_);
  }

 private:
  absl::StatusOr<std::vector<Stage>> Stages() {
    std::vector<Stage> stages = StagesOf(model_, rank_job_, setting_);
    if (!setting_.mesh.in_halves()) return stages;
    shape_ = ShapeInHalves(setting_.mesh.pipeline, setting_.micro_batches);
    GEMINID_ASSIGN_OR_RETURN(schedule_, collectives::MakePipelineSchedule(shape_));
    for (std::size_t s = 0; s < stages.size(); ++s) {
      stages[s].in_flight =
          InFlightInHalves(model_, rank_job_, setting_.mesh, stages[s], schedule_[s]);
    }
    return stages;
  }

  absl::Status Add(const Stage& stage) {
    const MeshRankWork work(model_, rank_job_, setting_.mesh, stage.layers, stage.in_flight);
    GEMINID_ASSIGN_OR_RETURN(PlannedStage made, PlanStage(model_, rank_job_, setting_, work));
    planned_.fits = planned_.fits && made.fits;
    planned_.host_bytes = std::max(planned_.host_bytes, made.host_bytes());
    const double pass = std::max(made.pass_seconds, made.sharing_seconds);
    update_seconds_ = std::max(update_seconds_, made.update_seconds);
    if (made.fits && pass > slowest_seconds_) {
      slowest_seconds_ = pass;
      slowest_ = PassCostOf(model_, rank_job_, work);
      transfer_seconds_ = TransferSeconds(rank_job_, setting_.mesh, work);
      const auto passes = static_cast<double>(setting_.micro_batches);
      planned_.pass_seconds = passes * made.pass_seconds;
      planned_.sharing_seconds = passes * made.sharing_seconds + made.sharing_once_seconds;
      const double first = made.sharing_seconds + made.sharing_once_seconds;
      once_seconds_ = std::max(pass, first) - pass;
      planned_.received_bytes = passes * (slowest_.received_bytes + made.shared_bytes +
                                          BoundaryBytesReceived(setting_.mesh, work)) +
                                made.shared_once_bytes;
    }
    const auto fullness = std::pair(made.lacking(), made.device_bytes());
    if (planned_.fullest_layers == 0 || fullness > fullness_) {
      fullness_ = fullness;
      planned_.device_bytes = made.device_bytes();
      planned_.fullest = std::move(made.forecast);
      planned_.fullest_layers = stage.layers.layers;
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    const double closed = slowest_.forward_seconds + slowest_.backward_seconds;
    const PassSeconds pass = {.forward = slowest_.forward_seconds / closed * slowest_seconds_,
                              .backward = slowest_.backward_seconds / closed * slowest_seconds_,
                              .weights = slowest_.weight_seconds / closed * slowest_seconds_,
                              .transfer = transfer_seconds_};
    GEMINID_ASSIGN_OR_RETURN(const PipelineStep step,
                             setting_.mesh.in_halves()
                                 ? StepInHalves(shape_, schedule_, pass)
                                 : StepOf(setting_.mesh.pipeline, setting_.micro_batches, pass));
    planned_.bubble = step.bubble;
    planned_.update_seconds = update_seconds_;
    planned_.step_seconds = step.seconds + once_seconds_ + update_seconds_ + TiedSeconds();
    planned_.received_bytes += TiedTableBytes(model_, setting_.mesh);
    planned_.tokens_per_second = static_cast<double>(rank_job_.batch.tokens()) *
                                 static_cast<double>(setting_.micro_batches) * setting_.mesh.data /
                                 planned_.step_seconds;
    return absl::OkStatus();
  }

  double TiedSeconds() const {
    const double bytes = TiedTableBytes(model_, setting_.mesh);
    if (bytes == 0) return 0;
    return bytes / LinkOf(PipelineGroup(setting_.mesh), rank_job_).bytes_per_second;
  }

  const Model& model_;
  const Job& rank_job_;
  const Setting setting_;
  collectives::PipelineShape shape_;  // and its schedule, in ZBV
  collectives::PipelineSchedule schedule_;
  PlannedMesh planned_;
  PassCost slowest_;
  double slowest_seconds_ = -1;
  double once_seconds_ = 0;  // of sharing, beside the first pass
  double transfer_seconds_ = 0;
  double update_seconds_ = 0;
  std::pair<double, std::uint64_t> fullness_;
};

constexpr std::size_t kPlannedWithoutRoom = 4;

// The order of candidates; equal ones stay in the order in which they were made.
bool IsSooner(const Candidate& a, const Candidate& b) {
  return std::tuple(a.cost.least_step_seconds, a.cost.received_bytes, a.cost.partners) <
         std::tuple(b.cost.least_step_seconds, b.cost.received_bytes, b.cost.partners);
}

bool IsBetter(const PlannedMesh& a, const PlannedMesh& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return a.device_bytes < b.device_bytes;
  return std::tuple(a.step_seconds, a.received_bytes, a.cost.partners) <
         std::tuple(b.step_seconds, b.received_bytes, b.cost.partners);
}

std::vector<MeshSpec> MeshesThatCut(const Model& model, const Job& job, std::size_t* others) {
  std::vector<MeshSpec> good;
  for (const MeshSpec& mesh : MeshesOf(static_cast<int>(job.ranks))) {
    if (CheckMesh(model, job.batch.sequence_length, mesh).ok()) {
      good.push_back(mesh);
    } else {
      ++*others;
    }
  }
  return good;
}

absl::Status WithNearest(const absl::Status& status, const Model& model, const Job& job,
                         const MeshSpec& mesh) {
  std::size_t others = 0;
  std::vector<MeshSpec> usable;
  for (const MeshSpec& good : MeshesThatCut(model, job, &others)) {
    if (!SettingsOf(job, good).empty()) usable.push_back(good);
  }
  std::vector<std::string> names;
  for (const MeshSpec& near : Nearest(mesh, usable, 2)) names.push_back(ToString(near));
  if (names.empty()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(status.message(), "; the nearest that fit: ", absl::StrJoin(names, " and ")));
}

// The candidates of all meshes, sorted; counts those that are refused.
absl::StatusOr<std::vector<Candidate>> CandidatesOf(const Model& model, const Job& job,
                                                    const std::vector<MeshSpec>& meshes,
                                                    const ChooseOptions& options, Choice* choice) {
  std::vector<Candidate> candidates;
  for (const MeshSpec& mesh : meshes) {
    for (const Setting& setting : SettingsOf(job, mesh, options.micro_batches)) {
      if (options.usable != nullptr && !options.usable(setting)) continue;
      GEMINID_ASSIGN_OR_RETURN(const Cost cost, CostOf(model, job, setting));
      candidates.push_back({setting, cost});
    }
  }
  choice->settings = candidates.size();
  std::stable_sort(candidates.begin(), candidates.end(), IsSooner);
  std::vector<Candidate> small;
  for (const Candidate& candidate : candidates) {
    if (candidate.cost.least_device_bytes <= job.hardware.usable_bytes()) {
      small.push_back(candidate);
    }
  }
  choice->too_large = candidates.size() - small.size();
  if (!small.empty()) return small;
  // Nothing fits: the planner shall say by how much, for those that are nearest to it.
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return a.cost.least_device_bytes < b.cost.least_device_bytes;
  });
  candidates.resize(std::min(candidates.size(), kPlannedWithoutRoom));
  return candidates;
}

// What tells meshes apart at first sight.
struct Kind {
  bool pipeline = false, in_halves = false, sequence = false, tensor = false;
  SequenceMode sequence_mode = SequenceMode::kUlysses;
  collectives::TensorMode mode = collectives::TensorMode::k1D;
  friend bool operator==(const Kind&, const Kind&) = default;
};
Kind KindOf(const MeshSpec& mesh) {
  return {mesh.pipeline > 1, mesh.in_halves(),   mesh.sequence > 1,
          mesh.tensor > 1,   mesh.sequence_mode, mesh.tensor_mode};
}

// Plans candidates, which are in the order of their bounds.
class Search {
 public:
  Search(const Model& model, const Job& job, const ChooseOptions& options)
      : model_(model), job_(job), options_(options) {}

  absl::Status Run(const std::vector<Candidate>& candidates, Choice* choice) {
    std::size_t next = 0;
    for (; next < candidates.size(); ++next) {
      if (best_ >= 0 && candidates[next].cost.least_step_seconds >= best_) break;
      if (choice->planned.size() >= options_.most_planned) break;
      GEMINID_RETURN_IF_ERROR(Plan(candidates[next], choice));
    }
    for (; next < candidates.size(); ++next) {
      const bool others = best_ >= 0 && candidates[next].cost.least_step_seconds >= best_;
      if (!IsSought(candidates[next].setting.mesh)) {
        ++(others ? choice->bounded_out : choice->not_planned);
        continue;
      }
      GEMINID_RETURN_IF_ERROR(Plan(candidates[next], choice));
      ++choice->for_comparison;
    }
    return absl::OkStatus();
  }

 private:
  struct Tried {
    Kind kind;
    int times = 0;
    bool fits = false;
  };
  Tried& TriedOf(const Kind& kind) {
    for (Tried& tried : tried_) {
      if (tried.kind == kind) return tried;
    }
    return tried_.emplace_back(Tried{kind});
  }

  // Whether the mesh is of a kind that the table does not have yet.
  bool IsSought(const MeshSpec& mesh) {
    const Tried& tried = TriedOf(KindOf(mesh));
    return options_.kinds && !tried.fits && tried.times < kTriesOfKind;
  }

  absl::Status Plan(const Candidate& candidate, Choice* choice) {
    GEMINID_ASSIGN_OR_RETURN(PlannedMesh planned, PlanMesh(model_, job_, candidate.setting));
    Tried& tried = TriedOf(KindOf(candidate.setting.mesh));
    ++tried.times;
    tried.fits = tried.fits || planned.fits;
    if (planned.fits && (best_ < 0 || planned.step_seconds < best_)) best_ = planned.step_seconds;
    choice->planned.push_back(std::move(planned));
    return absl::OkStatus();
  }

  static constexpr int kTriesOfKind = 3;

  const Model& model_;
  const Job& job_;
  const ChooseOptions& options_;
  double best_ = -1;  // seconds of the shortest step; below 0: none fits yet
  std::vector<Tried> tried_;
};

}  // namespace

absl::StatusOr<PlannedMesh> PlanMesh(const Model& model, const Job& job, const Setting& setting) {
  GEMINID_ASSIGN_OR_RETURN(const Job rank_job, RankJobOf(job, setting));
  return PlanRank(model, rank_job, setting);
}

absl::StatusOr<PlannedMesh> PlanRank(const Model& model, const Job& rank_job,
                                     const Setting& setting) {
  return MeshPlanner(model, rank_job, setting).Run();
}

absl::StatusOr<MeshSpec> MeshForJob(const Model& model, const Job& job, const ParsedMesh& parsed) {
  MeshSpec mesh = parsed.mesh;
  const auto ranks = static_cast<std::int64_t>(job.ranks);
  const std::int64_t cut = mesh.ranks() / mesh.data;
  if (!parsed.data_is_given) mesh.data = static_cast<int>(std::max<std::int64_t>(1, ranks / cut));
  absl::Status status;
  if (mesh.ranks() != ranks) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "--parallel: ", ToString(mesh), " has ", mesh.ranks(), " ranks and the cluster ", ranks));
  } else {
    GEMINID_RETURN_IF_ERROR(CheckWithinHosts(mesh, job));
    status = CheckMeshInWords(model, job.batch.sequence_length, mesh);
  }
  if (!status.ok()) return WithNearest(status, model, job, mesh);
  return mesh;
}

absl::StatusOr<Choice> Choose(const Model& model, const Job& job, const ChooseOptions& options) {
  GEMINID_RETURN_IF_ERROR(Validate(model));
  GEMINID_RETURN_IF_ERROR(Validate(job));
  Choice choice;
  std::vector<MeshSpec> meshes;
  if (options.only.has_value()) {
    meshes = {*options.only};
  } else {
    meshes = MeshesThatCut(model, job, &choice.meshes_not_cut);
  }
  GEMINID_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                           CandidatesOf(model, job, meshes, options, &choice));
  if (candidates.empty()) {
    const Setting first = {.mesh = meshes.empty() ? MeshSpec{} : meshes.front(),
                           .micro_batches = std::max<std::uint64_t>(1, options.micro_batches)};
    absl::Status why = MicroBatchOf(job, first).status();
    if (options.usable != nullptr) {
      why = RefuseParallel("auto finds no mesh for this run; a larger --batch allows for more");
    } else if (why.ok()) {
      why = absl::InvalidArgumentError(absl::StrCat("--parallel: at most ", kMicroBatchesMax,
                                                    " micro-batches are planned; --accumulate is ",
                                                    options.micro_batches));
    }
    return options.usable != nullptr ? why : WithNearest(why, model, job, first.mesh);
  }
  GEMINID_RETURN_IF_ERROR(Search(model, job, options).Run(candidates, &choice));
  std::stable_sort(choice.planned.begin(), choice.planned.end(), IsBetter);
  return choice;
}

absl::StatusOr<std::optional<PlannedMesh>> NearestThatFits(const Model& model, const Job& job,
                                                           const MeshSpec& mesh) {
  constexpr std::size_t kTried = 12;
  std::size_t others = 0;
  std::vector<MeshSpec> meshes = MeshesThatCut(model, job, &others);
  std::erase(meshes, mesh);
  for (const MeshSpec& near : Nearest(mesh, meshes, kTried)) {
    if (SettingsOf(job, near).empty()) continue;
    GEMINID_ASSIGN_OR_RETURN(Choice choice,
                             Choose(model, job, {.only = near, .most_planned = 2, .kinds = false}));
    if (choice.fits()) return std::move(choice.planned.front());
  }
  return std::nullopt;
}

}  // namespace geminid::parallel
