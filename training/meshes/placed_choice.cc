#include "training/meshes/placed_choice.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/forecast/optimizer.h"
#include "training/meshes/axes.h"

namespace geminid::parallel {
namespace {

forecast::Hardware HardwareOf(const Place& place, double element_size) {
  // What a copy reads and writes.
  const double memory = 2 * place.copied_bytes_per_second;
  const double local_ranks = static_cast<double>(place.ranks) / place.hosts;
  // Where there is nobody to receive from, a rate that the planner takes and never uses.
  const auto rate = [&](double measured) {
    return (measured > 0 ? measured : place.copied_bytes_per_second) / element_size;
  };
  return {.name = "this run's ranks",
          .device_bytes =
              static_cast<std::uint64_t>(static_cast<double>(place.device_bytes) / element_size),
          .flops = place.operations_per_second,
          .achieved_share = 1,
          .device_memory_bytes_per_second = memory / element_size,
          .up_bytes_per_second = place.link_bytes_per_second / element_size,
          .down_bytes_per_second = place.link_bytes_per_second / element_size,
          .peer_bytes_per_second = rate(place.peer_bytes_per_second),
          .network_bytes_per_second = local_ranks * rate(place.network_bytes_per_second),
          .host_memory_bytes_per_second = local_ranks * memory / element_size,
          .peer_message_seconds = place.peer_message_seconds,
          .network_message_seconds = place.network_message_seconds};
}

}  // namespace

absl::StatusOr<forecast::Job> JobOf(const PlacedRun& run) {
  const auto ranks = static_cast<std::uint64_t>(run.place.ranks);
  if (run.sequences % ranks != 0) {
    return RefuseParallel(absl::StrCat(
        "auto divides the ", run.sequences,
        " sequences of a step (--batch x --accumulate) evenly, which is not possible with ", ranks,
        " ranks; change one of them, or name the axes"));
  }
  // Half-precision elements are what the forecast counts with.
  const double size = static_cast<double>(run.element_bytes) / forecast::kElementBytes;
  forecast::Job job = {
      .hardware = HardwareOf(run.place, size),
      .nodes = static_cast<std::uint32_t>(run.place.hosts),
      .ranks = static_cast<std::uint32_t>(run.place.ranks),
      .host_bytes = run.place.host_bytes,
      .batch = {.sequences = run.sequences / ranks, .sequence_length = run.sequence_length},
      .float_bytes = forecast::kFloatBytes * forecast::kElementBytes / run.element_bytes};
  GEMINID_ASSIGN_OR_RETURN(job.optimizer, forecast::FindOptimizer(run.optimizer));
  job.optimizer.small_state = run.small_state;
  if (run.activations == "recomputed") job.activations = forecast::Activations::kRecompute;
  if (run.activations == "kept") job.activations = forecast::Activations::kKeep;
  return job;
}

absl::StatusOr<Choice> ChooseFor(const forecast::Model& model, const PlacedRun& run) {
  GEMINID_ASSIGN_OR_RETURN(const forecast::Job job, JobOf(run));
  const std::set<std::string> trained(run.meshes.begin(), run.meshes.end());
  return Choose(model, job, {.usable = [&](const Setting& setting) {
                  return setting.micro_batches >= run.least_micro_batches &&
                         trained.contains(ToString(setting.mesh));
                }});
}

}  // namespace geminid::parallel
