#include "tools/sim/prediction.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/json_writer.h"
#include "tools/sim/compare.h"

namespace geminid::sim {
namespace {

void AddRanks(const SimulationResult& run, double part, Prediction* sum) {
  for (const RankUse& rank : run.ranks) {
    for (size_t i = 0; i < sum->wait_seconds.size(); ++i) {
      sum->wait_seconds[i] += part * rank.wait_seconds[i];
    }
    for (size_t i = 0; i < sum->busy_seconds.size(); ++i) {
      sum->busy_seconds[i] += part * rank.busy_seconds[i];
    }
    sum->up_bytes += part * static_cast<double>(rank.up_bytes);
    sum->down_bytes += part * static_cast<double>(rank.down_bytes);
    sum->disk_read_bytes += part * static_cast<double>(rank.disk_read_bytes);
    sum->disk_write_bytes += part * static_cast<double>(rank.disk_write_bytes);
    if (Total(rank.peak) > Total(sum->device_peak)) sum->device_peak = rank.peak;
  }
  for (const uint64_t bytes : run.host_bytes) {
    sum->host_peak_bytes = std::max(sum->host_peak_bytes, bytes);
  }
}

std::string Size(double bytes) { return base::FormatBytes(static_cast<uint64_t>(bytes)); }

std::string Milliseconds(double seconds) { return absl::StrFormat("%.3f ms", 1e3 * seconds); }

const char* Name(FailureKind kind) { return kind == FailureKind::kRank ? "rank" : "daemon"; }

}  // namespace

absl::StatusOr<Prediction> Predict(const Machine& machine, const Workload& workload,
                                   const Schedule& schedule, const SimulationOptions& options,
                                   uint64_t seeds) {
  Prediction prediction;
  prediction.policy = schedule.policy;
  prediction.seeds = seeds;
  prediction.arena_bytes = workload.trace.arena_bytes;
  std::vector<double> steps;
  for (uint64_t n = 0; n < seeds; ++n) {
    SimulationOptions one = options;
    one.seed = options.seed + n;
    one.keeps_events = options.keeps_events && n == 0;
    absl::StatusOr<SimulationResult> run = Simulate(machine, workload, schedule, one);
    if (!run.ok()) return run.status();
    steps.insert(steps.end(), run->step_seconds.begin(), run->step_seconds.end());
    const double parts = static_cast<double>(seeds * options.steps * run->ranks.size());
    AddRanks(*run, 1 / parts, &prediction);
    prediction.first_step_seconds += run->first_step_seconds / static_cast<double>(seeds);
    if (n > 0) continue;
    prediction.recoveries = run->recoveries;
    prediction.first = *std::move(run);
  }
  std::sort(steps.begin(), steps.end());
  prediction.step_mean_seconds =
      std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(steps.size());
  prediction.step_p50_seconds = Quantile(steps, 0.5);
  prediction.step_p99_seconds = Quantile(steps, 0.99);
  prediction.compute_seconds = prediction.busy_seconds[static_cast<size_t>(Track::kCompute)];
  return prediction;
}

std::string ToText(const Prediction& p) {
  std::string text = absl::StrFormat(
      "Policy %s: a step takes %s (half of them at most %s, 99 of 100 at most %s), of which %s are "
      "computation.\n",
      p.policy, Milliseconds(p.step_mean_seconds), Milliseconds(p.step_p50_seconds),
      Milliseconds(p.step_p99_seconds), Milliseconds(p.compute_seconds));
  absl::StrAppend(
      &text, "Each rank moves ", Size(p.up_bytes), " up (link busy ",
      absl::StrFormat("%.1f %%",
                      100 * p.busy_seconds[static_cast<size_t>(Track::kUp)] / p.step_mean_seconds),
      ") and ", Size(p.down_bytes), " down (",
      absl::StrFormat(
          "%.1f %%", 100 * p.busy_seconds[static_cast<size_t>(Track::kDown)] / p.step_mean_seconds),
      ") per step");
  if (p.disk_read_bytes + p.disk_write_bytes > 0) {
    absl::StrAppend(&text, ", reads ", Size(p.disk_read_bytes), " from disk and writes ",
                    Size(p.disk_write_bytes));
  }
  absl::StrAppend(&text, ".\nPeak device memory: ", Size(static_cast<double>(Total(p.device_peak))),
                  " of ", Size(static_cast<double>(p.arena_bytes)));
  for (size_t owner = 0; owner < p.device_peak.size(); ++owner) {
    absl::StrAppend(&text, owner == 0 ? " (" : ", ", sim::Name(static_cast<Owner>(owner)), " ",
                    Size(static_cast<double>(p.device_peak[owner])));
  }
  absl::StrAppend(&text, "). Host memory of a node: ", Size(static_cast<double>(p.host_peak_bytes)),
                  ".\nWaiting:");
  bool waits = false;
  for (size_t cause = 0; cause < p.wait_seconds.size(); ++cause) {
    if (p.wait_seconds[cause] < 1e-9) continue;
    absl::StrAppend(&text, waits ? ", " : " ", sim::Name(static_cast<WaitCause>(cause)), " ",
                    Milliseconds(p.wait_seconds[cause]));
    waits = true;
  }
  absl::StrAppend(&text, waits ? "" : " none", ".\n");
  for (const RecoveryResult& recovery : p.recoveries) {
    absl::StrAppendFormat(
        &text,
        "%s %d is killed at %.3f s: training goes on at %.3f s, %.3f s of it are done again.\n",
        Name(recovery.failure.kind), recovery.failure.index, recovery.failure.at_seconds,
        recovery.resumed_at_seconds, recovery.lost_seconds);
  }
  return text;
}

std::string ToJson(const Prediction& p) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("policy").Value(p.policy).Key("seeds").Value(p.seeds);
  json.Key("step_mean_seconds").Value(p.step_mean_seconds);
  json.Key("step_p50_seconds").Value(p.step_p50_seconds);
  json.Key("step_p99_seconds").Value(p.step_p99_seconds);
  json.Key("first_step_seconds").Value(p.first_step_seconds);
  json.Key("busy_seconds").BeginObject();
  for (size_t i = 0; i < p.busy_seconds.size(); ++i) {
    json.Key(sim::Name(static_cast<Track>(i))).Value(p.busy_seconds[i]);
  }
  json.EndObject();
  json.Key("wait_seconds").BeginObject();
  for (size_t i = 0; i < p.wait_seconds.size(); ++i) {
    json.Key(sim::Name(static_cast<WaitCause>(i))).Value(p.wait_seconds[i]);
  }
  json.EndObject();
  json.Key("up_bytes").Value(p.up_bytes).Key("down_bytes").Value(p.down_bytes);
  json.Key("disk_read_bytes").Value(p.disk_read_bytes);
  json.Key("disk_write_bytes").Value(p.disk_write_bytes);
  json.Key("arena_bytes").Value(p.arena_bytes);
  json.Key("device_peak_bytes").BeginObject();
  for (size_t i = 0; i < p.device_peak.size(); ++i) {
    json.Key(sim::Name(static_cast<Owner>(i))).Value(p.device_peak[i]);
  }
  json.Key("total").Value(Total(p.device_peak)).EndObject();
  json.Key("host_peak_bytes").Value(p.host_peak_bytes);
  json.Key("device_bytes_by_moment").BeginArray();
  for (const DeviceBytes& moment : p.first.moments) {
    json.BeginObject();
    for (size_t i = 0; i < moment.size(); ++i) {
      json.Key(sim::Name(static_cast<Owner>(i))).Value(moment[i]);
    }
    json.EndObject();
  }
  json.EndArray();
  json.Key("recoveries").BeginArray();
  for (const RecoveryResult& recovery : p.recoveries) {
    json.BeginObject();
    json.Key("kind").Value(Name(recovery.failure.kind));
    json.Key("index").Value(static_cast<uint64_t>(recovery.failure.index));
    json.Key("at_seconds").Value(recovery.failure.at_seconds);
    json.Key("resumed_at_seconds").Value(recovery.resumed_at_seconds);
    json.Key("lost_seconds").Value(recovery.lost_seconds).EndObject();
  }
  json.EndArray().EndObject();
  return json.text() + "\n";
}

}  // namespace geminid::sim
