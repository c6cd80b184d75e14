#include "daemon/planner/sharing/share_by_goodput.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/planner/sharing/foresight.h"
#include "daemon/planner/sharing/sharing_problem.h"

namespace geminid::planner {
namespace {

constexpr std::array<const char*, kResources> kNames = {"bytes of device memory", "ranks",
                                                        "bytes a second of the link"};

// The most seconds of work that a job counts with, so that the ends of other jobs still matter.
constexpr double kMostSeconds = 30 * 24 * 3600;

// The largest fraction of any resource that the amounts take.
double Dominant(const ResourceAmounts& amounts, const ResourceAmounts& node) {
  double most = 0;
  for (std::size_t k = 0; k < kResources; ++k) {
    if (amounts[k] == 0) continue;
    most = std::max(most, static_cast<double>(amounts[k]) / static_cast<double>(node[k]));
  }
  return most;
}

// One decision, in the order of its methods.
class Sharing {
 public:
  Sharing(const Share& node, std::span<const SharingJob> jobs, const SharingSettings& settings,
          double now)
      : node_(node.amounts()),
        jobs_(jobs),
        settings_(settings),
        now_(now),
        least_(jobs.size()),
        pinned_(jobs.size()) {}

  absl::Status Check() {
    ResourceAmounts guaranteed{};
    ResourceAmounts held{};
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      GEMINID_RETURN_IF_ERROR(CheckRows(jobs_[j]));
      held = Plus(held, AmountsOf(j, jobs_[j].row));
      if (!HasGuarantee(j)) continue;
      GEMINID_ASSIGN_OR_RETURN(least_[j], LeastRow(jobs_[j]));
      guaranteed = Plus(guaranteed, AmountsOf(j, least_[j]));
    }
    for (std::size_t k = 0; k < kResources; ++k) {
      if (held[k] > node_[k]) {
        return absl::InvalidArgumentError(absl::StrCat("the jobs have ", held[k], " ", kNames[k],
                                                       ", and the node has ", node_[k]));
      }
      if (guaranteed[k] <= node_[k]) continue;
      return absl::ResourceExhaustedError(
          absl::StrCat("the jobs are guaranteed ", guaranteed[k], " ", kNames[k],
                       " together, and the node has ", node_[k], ": lower a guarantee"));
    }
    return absl::OkStatus();
  }

  // Pins the jobs that keep their rows for now. Guarantees that would not fit beside them unpin
  // other jobs, the lowest priority and the youngest first.
  void Pin() {
    std::vector<std::size_t> pinned;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      const SharingJob& job = jobs_[j];
      pinned_[j] = job.row && IsEligible(j, *job.row) && now_ - job.since < settings_.least_seconds;
      if (pinned_[j]) pinned.push_back(j);
    }
    std::ranges::stable_sort(pinned, [this](std::size_t a, std::size_t b) {
      return std::pair(jobs_[a].priority, -jobs_[a].since) <
             std::pair(jobs_[b].priority, -jobs_[b].since);
    });
    for (const std::size_t j : pinned) {
      if (Fits(Reserved([](std::size_t) { return true; }), node_)) return;
      pinned_[j] = false;
    }
  }

  // Pins every job to its present row. False if the guarantees then do not fit.
  bool PinAll() {
    for (std::size_t j = 0; j < jobs_.size(); ++j) pinned_[j] = jobs_[j].row.has_value();
    return Fits(Reserved([](std::size_t) { return true; }), node_);
  }

  std::vector<std::optional<std::size_t>> Decide() {
    std::vector<std::optional<std::size_t>> rows(jobs_.size());
    std::map<std::int32_t, std::vector<std::size_t>, std::greater<>> levels;
    for (std::size_t j = 0; j < jobs_.size(); ++j) levels[jobs_[j].priority].push_back(j);
    ResourceAmounts given{};
    for (const auto& [priority, level] : levels) {
      const ResourceAmounts below =
          Reserved([this, p = priority](std::size_t j) { return jobs_[j].priority < p; });
      DecideLevel(level, Minus(Minus(node_, given), below), &rows);
      for (const std::size_t j : level) given = Plus(given, AmountsOf(j, rows[j]));
    }
    return rows;
  }

  std::optional<double> LookAgain() const {
    std::optional<double> at;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (!pinned_[j]) continue;
      const double free = jobs_[j].since + settings_.least_seconds;
      at = std::min(at.value_or(free), free);
    }
    return at;
  }

 private:
  bool HasGuarantee(std::size_t job) const { return jobs_[job].guarantee != Share{}; }
  ResourceAmounts AmountsOf(std::size_t job, const std::optional<std::size_t>& row) const {
    return planner::AmountsOf(jobs_[job], row);
  }
  bool IsEligible(std::size_t job, std::size_t row) const {
    return Fits(jobs_[job].guarantee.amounts(), AmountsOf(job, row)) &&
           Fits(AmountsOf(job, row), node_);
  }

  static absl::Status CheckRows(const SharingJob& job) {
    if (job.remaining && !(std::isfinite(*job.remaining) && *job.remaining >= 0)) {
      return absl::InvalidArgumentError(absl::StrCat("job ", job.id, " has ", *job.remaining,
                                                     " of its work left; it must be 0 or more"));
    }
    for (std::size_t r = 0; r < job.rows.size(); ++r) {
      const double goodput = job.rows[r].goodput;
      if (std::isfinite(goodput) && goodput > 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "row ", r, " of job ", job.id, " has the goodput ", goodput, "; it must be above 0"));
    }
    if (!job.row || *job.row < job.rows.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("job ", job.id, " has row ", *job.row, " of ", job.rows.size()));
  }

  absl::StatusOr<std::size_t> LeastRow(const SharingJob& job) const {
    const auto j = static_cast<std::size_t>(&job - jobs_.data());
    std::optional<std::size_t> least;
    for (std::size_t r = 0; r < job.rows.size(); ++r) {
      if (!IsEligible(j, r)) continue;
      if (!least || Dominant(AmountsOf(j, r), node_) < Dominant(AmountsOf(j, least), node_)) {
        least = r;
      }
    }
    if (least) return *least;
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", job.id, " has no row that is at least its guarantee (", job.guarantee.memory_bytes,
        " bytes, ", job.guarantee.ranks, " ranks, ", job.guarantee.link_bytes_per_second,
        " bytes a second) and fits the node; give it such a row"));
  }

  // The amounts that jobs have in any case.
  template <typename Which>
  ResourceAmounts Reserved(const Which& which) const {
    ResourceAmounts amounts{};
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (!which(j)) continue;
      amounts = Plus(amounts, AmountsOf(j, pinned_[j] ? jobs_[j].row : least_[j]));
    }
    return amounts;
  }

  // Nothing: the job has no row that fits.
  std::optional<Competitor> ContenderOf(std::size_t j, const ResourceAmounts& room) const {
    const SharingJob& job = jobs_[j];
    Competitor contender = {.rows = {{}}, .pinned = pinned_[j], .came = job.since};
    double best = 0;
    for (std::size_t r = 0; r < job.rows.size(); ++r) {
      if (!IsEligible(j, r) || !Fits(AmountsOf(j, r), room)) continue;
      best = std::max(best, job.rows[r].goodput);
      if (job.row == r) contender.now = contender.rows.size();
      if (least_[j] == r) contender.least = contender.rows.size();
      contender.rows.push_back({AmountsOf(j, r), job.rows[r].goodput, r});
    }
    if (best == 0) return std::nullopt;
    for (Competitor::Row& row : contender.rows) row.rate /= best;
    contender.seconds = job.remaining ? std::clamp(*job.remaining / best, 1e-6, kMostSeconds)
                                      : settings_.unknown_seconds;
    return contender;
  }

  void DecideLevel(const std::vector<std::size_t>& level, const ResourceAmounts& room,
                   std::vector<std::optional<std::size_t>>* rows) const {
    SharingProblem problem = {.jobs = {}, .room = room, .move_seconds = settings_.move_seconds};
    std::vector<std::size_t> places;
    for (const std::size_t j : level) {
      std::optional<Competitor> contender = ContenderOf(j, room);
      if (!contender) continue;
      problem.jobs.push_back(*std::move(contender));
      places.push_back(j);
    }
    if (problem.jobs.empty()) return;
    const RowChoice choice = ChooseByForesight(problem, settings_.least_gain);
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (choice[i] == kWaits) continue;
      (*rows)[places[i]] = problem.jobs[i].rows[choice[i]].index;
    }
  }

  const ResourceAmounts node_;
  const std::span<const SharingJob> jobs_;
  const SharingSettings& settings_;
  const double now_;
  std::vector<std::optional<std::size_t>> least_;  // of jobs with a guarantee
  std::vector<bool> pinned_;
};

}  // namespace

absl::StatusOr<SharingDecision> ShareByGoodput(const Share& node, std::span<const SharingJob> jobs,
                                               const SharingSettings& settings, double now) {
  Sharing sharing(node, jobs, settings, now);
  GEMINID_RETURN_IF_ERROR(sharing.Check());
  sharing.Pin();
  SharingDecision decision = {.rows = sharing.Decide(), .moves = {}};
  decision.look_again = sharing.LookAgain();
  std::optional<std::vector<Move>> moves = OrderMoves(node, jobs, decision.rows);
  if (moves) {
    decision.moves = *std::move(moves);
    return decision;
  }
  // Jobs with rows would have to swap them, and no order of moves keeps the guarantees. They keep
  // their rows, and waiting jobs get the rest.
  decision.look_again = now + settings.least_seconds;
  if (sharing.PinAll()) {
    decision.rows = sharing.Decide();
    moves = OrderMoves(node, jobs, decision.rows);
  }
  if (moves) {
    decision.moves = *std::move(moves);
  } else {
    for (std::size_t j = 0; j < jobs.size(); ++j) decision.rows[j] = jobs[j].row;
  }
  return decision;
}

}  // namespace geminid::planner
