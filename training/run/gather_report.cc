#include "training/run/gather_report.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "training/launch/sha256.h"
#include "training/ranks/arithmetic.h"

namespace geminid::trainer {
namespace {

struct Field {
  uint64_t zero::Statistics::*from;
  uint64_t RankReport::*to;
};
constexpr std::array kFields = {
    Field{&zero::Statistics::model_state_bytes, &RankReport::model_state_bytes},
    Field{&zero::Statistics::device_state_bytes, &RankReport::device_state_bytes},
    Field{&zero::Statistics::host_bytes, &RankReport::host_bytes},
    Field{&zero::Statistics::state_disk_bytes, &RankReport::state_disk_bytes},
    Field{&zero::Statistics::arena_bytes, &RankReport::device_bytes_limit},
    Field{&zero::Statistics::peak_model_bytes, &RankReport::peak_model_bytes},
    Field{&zero::Statistics::peak_workspace_bytes, &RankReport::peak_workspace_bytes},
    Field{&zero::Statistics::peak_total_bytes, &RankReport::peak_total_bytes},
    Field{&zero::Statistics::host_to_device_bytes, &RankReport::host_to_device_bytes},
    Field{&zero::Statistics::activation_bytes, &RankReport::activation_bytes},
    Field{&zero::Statistics::activation_place_bytes, &RankReport::activation_place_bytes},
    Field{&zero::Statistics::device_to_host_bytes, &RankReport::device_to_host_bytes},
    Field{&zero::Statistics::transfer_bytes_lower_bound, &RankReport::transfer_bytes_lower_bound},
    Field{&zero::Statistics::received_bytes, &RankReport::received_bytes},
    Field{&zero::Statistics::received_within_host_bytes, &RankReport::received_within_host_bytes},
};

// Of so many steps, those by which the rate is told.
size_t RecentSteps(size_t steps) {
  constexpr size_t kRecentSteps = 16;
  // The first step samples and plans: it says little about the others.
  return std::clamp<size_t>(steps - 1, 1, kRecentSteps);
}

}  // namespace

absl::Status GatherStatistics(collectives::Communicator& communicator,
                              const zero::Statistics& statistics, DeviceIndex device,
                              Report* report) {
  const auto ranks = static_cast<size_t>(communicator.WorldSize());
  std::vector<int64_t> mine;
  for (const Field& field : kFields) mine.push_back(static_cast<int64_t>(statistics.*field.from));
  std::vector<int64_t> all(ranks * mine.size());
  GEMINID_RETURN_IF_ERROR(communicator.AllGather(mine, all));
  const std::vector<double> my_stall = {statistics.stall_seconds};
  std::vector<double> stalls(ranks);
  GEMINID_RETURN_IF_ERROR(communicator.AllGather(my_stall, stalls));
  const std::vector<int64_t> my_device = {static_cast<int64_t>(device)};
  std::vector<int64_t> devices(ranks);
  GEMINID_RETURN_IF_ERROR(communicator.AllGather(my_device, devices));

  report->ranks.assign(ranks, {});
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < kFields.size(); ++i) {
      report->ranks[rank].*kFields[i].to = static_cast<uint64_t>(all[rank * kFields.size() + i]);
    }
    report->ranks[rank].stall_seconds = stalls[rank];
    report->ranks[rank].device = static_cast<uint64_t>(devices[rank]);
  }
  report->ranks_exchange_by = statistics.ranks_exchange_by;
  report->registered_bytes = statistics.registered_bytes;
  report->stall_seconds_by_cause = statistics.stall_seconds_by_cause;
  report->chunks = statistics.chunks;
  report->chunk_elements = statistics.chunk_elements;
  report->plans_made = statistics.plans_made;
  report->replans_by_cause = statistics.replans_by_cause;
  report->everything_fits = statistics.everything_fits;
  report->plan_explanation = statistics.plan_explanation;
  return absl::OkStatus();
}

std::string LongestStall(const zero::Statistics& statistics, double seconds) {
  const auto& causes = statistics.stall_seconds_by_cause;
  const auto longest =
      std::max_element(causes.begin(), causes.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (longest == causes.end()) return "";
  return absl::StrFormat("%s %.0f%%", longest->first, 100 * longest->second / seconds);
}

void DescribeRun(const TrainOptions& options, const TrainedModel& model, const Session& session,
                 Report* report) {
  report->options = options;
  report->notes = options.notes;
  report->instruction_set = InstructionSet();
  if (model.on_gpu()) report->computes_on = session.device_description().name;
  report->products_by = model.place().Products();
  report->attention_by = model.place().Attention();
  report->flops_per_token = FlopsPerToken(options.model);
  report->native_data_type = IsNative(options.zero.data_type, model.on_gpu());
}

absl::Status GatherRun(collectives::Communicator& communicator, const TrainedModel& model,
                       const Session& session, Report* report) {
  GEMINID_ASSIGN_OR_RETURN(const zero::Statistics statistics, model.engine().GetStatistics());
  const HostRegistration host = session.GetHostRegistration();
  report->products_by = model.place().Products();  // with what has happened since DescribeRun
  report->attention_by = model.place().Attention();
  report->layers_add_up_by = model.LayersAddUpBy();
  report->keys_travel_by = model.KeysTravelBy();
  GEMINID_ASSIGN_OR_RETURN(report->traffic, model.traffic().Gather(communicator));
  report->host_bytes_registered = host.registered_bytes;
  report->host_bytes_refused = host.refused_bytes;
  return GatherStatistics(communicator, statistics, session.device_description().index, report);
}

absl::StatusOr<std::string> HashOfWeights(zero::ModelState& state, size_t parameters, bool writes) {
  Sha256 hash;
  for (size_t i = 0; i < parameters; ++i) {
    GEMINID_ASSIGN_OR_RETURN(const std::vector<float> values,
                             state.ReadParameter(static_cast<zero::ParameterId>(i)));
    if (writes) hash.Add(std::as_bytes(std::span(values)));
  }
  return writes ? hash.Finish() : std::string();
}

StepRecord LastStepOf(const Report& report, const zero::StepResult& result, double learning_rate) {
  const uint64_t done = report.first_step + report.losses.size();
  StepRecord record = {.step = done,
                       .time = base::WallClockNow(),
                       .loss = report.losses.back(),
                       .epoch = EpochsDone(report),
                       .gradient_norm = result.gradient_norm,
                       .learning_rate = learning_rate,
                       .loss_scale = result.loss_scale,
                       .overflow = result.overflow,
                       .tokens = TokensDone(report),
                       .seconds = report.step_seconds.back()};
  if (!report.validation.empty() && report.validation.back().step == done) {
    record.validation_loss = report.validation.back().loss;
    record.validation_accuracy = report.validation.back().accuracy;
  }
  const size_t newest = report.losses.size() - 1;
  record.tokens_per_second = static_cast<double>(TokensOfStep(report, newest)) / record.seconds;
  if (report.following) {
    record.micro_batches = report.following->step_micro_batches.back();
    const std::vector<BatchChange>& changes = report.following->changes;
    if (!changes.empty() && changes.back().step == done) {
      record.batch_change = ChangeWords(changes.back());
    }
  }
  record.flops_per_second = record.tokens_per_second * report.flops_per_token;
  return record;
}

ProgressSample SampleOf(const Report& report, const zero::Statistics& statistics,
                        double seconds_of_training) {
  const size_t steps = report.step_seconds.size(), recent = RecentSteps(steps);
  uint64_t tokens = 0;
  for (size_t i = steps - recent; i < steps; ++i) tokens += TokensOfStep(report, i);
  const double tokens_per_second = static_cast<double>(tokens) / static_cast<double>(recent) /
                                   RecentStepSeconds(report.step_seconds);
  return {.step = report.first_step + report.losses.size(),
          .steps = StepsOf(report),
          .loss = report.losses.back(),
          .validation_loss = report.validation.empty()
                                 ? std::nullopt
                                 : std::optional(report.validation.back().loss),
          .validation_accuracy =
              report.validation.empty() ? std::nullopt : report.validation.back().accuracy,
          .non_finite_losses = report.non_finite_losses,
          .tokens_per_second = tokens_per_second,
          .flops_per_second = tokens_per_second * report.flops_per_token,
          .arithmetic = Arithmetic(report.options.zero.data_type, report.native_data_type),
          .peak_total_bytes = statistics.peak_total_bytes,
          .model_bytes_at_peak = statistics.model_bytes_at_peak,
          .device_bytes_limit = statistics.arena_bytes,
          .host_bytes = statistics.host_bytes,
          .stall_share = statistics.stall_seconds / seconds_of_training,
          .longest_stall = LongestStall(statistics, seconds_of_training)};
}

double RecentStepSeconds(const std::vector<double>& step_seconds) {
  const size_t count = RecentSteps(step_seconds.size());
  return std::accumulate(step_seconds.end() - static_cast<ptrdiff_t>(count), step_seconds.end(),
                         0.0) /
         static_cast<double>(count);
}

}  // namespace geminid::trainer
