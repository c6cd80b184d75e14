#include "tools/geminictl/plan/plan_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/flag_values.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/table.h"
#include "tools/geminictl/plan/plan_engine.h"
#include "training/forecast/catalogue.h"

namespace geminid::ctl {
namespace {

using planner::Tier;
using planner::TierBytes;

constexpr Tier kTiers[] = {Tier::kDevice, Tier::kHost, Tier::kDisk};

// Steps take from milliseconds to minutes.
std::string Seconds(double seconds) { return absl::StrFormat("%.3g s", seconds); }

std::string Parameters(std::uint64_t count) {
  const double number = static_cast<double>(count);
  return number < 1e8 ? absl::StrFormat("%.3g million", number * 1e-6)
                      : absl::StrFormat("%.3g billion", number * 1e-9);
}

// A device belongs to one rank, host and disk to all of a node.
std::uint64_t RanksBehind(const PlanAnswer& answer, Tier tier) {
  return tier == Tier::kDevice ? 1 : answer.job.ranks_per_node();
}

std::string Heading(const PlanAnswer& answer) {
  const forecast::Job& job = answer.job;
  std::string text = absl::StrCat(Printable(answer.subject), ": ",
                                  Parameters(answer.forecast.parameters), " parameters");
  absl::StrAppend(&text, "\n", job.ranks, " x ", job.hardware.name, " with ",
                  base::FormatBytes(job.hardware.usable_bytes()), " usable in ", job.nodes,
                  job.nodes == 1 ? " node" : " nodes", ", each with ");
  absl::StrAppend(
      &text,
      answer.host_is_given ? absl::StrCat(base::FormatBytes(job.host_bytes), " of host memory")
                           : std::string("as much host memory as it takes"),
      " and ",
      job.disk_bytes == 0 ? "no disk"
                          : absl::StrCat(base::FormatBytes(job.disk_bytes), " of disk"));
  if (answer.model.has_value()) {
    absl::StrAppend(&text, "\n", job.batch.sequences, " x ", job.batch.sequence_length,
                    " tokens per rank and step, ", job.optimizer.words());
  }
  for (const std::string& note : answer.notes) absl::StrAppend(&text, "\n", note);
  return absl::StrCat(text, "\n\n");
}

std::string Lacks(const PlanAnswer& answer) {
  std::string text;
  for (const Tier tier : kTiers) {
    const std::uint64_t lacking = answer.forecast.plan.lacking[static_cast<std::size_t>(tier)];
    if (lacking == 0) continue;
    absl::StrAppend(&text, " The ", planner::TierName(tier),
                    tier == Tier::kDevice ? "" : " of a node", " lacks ",
                    base::FormatBytes(lacking * RanksBehind(answer, tier)), ".");
  }
  return text;
}

std::string FitsOn(const PlanAnswer& answer) {
  const forecast::Job& job = answer.job;
  if (EngineRunsOn(job.hardware)) return "It fits.";
  return absl::StrCat("It fits a host device of ", base::FormatBytes(job.hardware.usable_bytes()),
                      ", which today's engine runs on. It has not run on a GPU yet.");
}

// The number that geminid-train names in its error for too little memory.
std::string TrainersNumber(const PlanAnswer& answer) {
  if (!answer.trainer_device_bytes) return "";
  const bool is_more =
      answer.forecast.fits() && *answer.trainer_device_bytes > answer.job.hardware.usable_bytes();
  return absl::StrCat(
      is_more ? "geminid-train may need more, which depends on its processor: it" : "geminid-train",
      " trains it with --device-memory ", base::ExactBytes(*answer.trainer_device_bytes),
      " on each rank, or more, where it recomputes activations.\n");
}

std::string Verdict(const PlanAnswer& answer) {
  const forecast::Forecast& f = answer.forecast;
  if (!f.fits()) {
    return absl::StrCat("It does not fit.", Lacks(answer), "\n", TrainersNumber(answer));
  }
  std::string text = FitsOn(answer);
  if (!answer.rates_are_known()) {
    return absl::StrCat(text, " How long a step takes is not said: rates are unknown without ",
                        "--hardware, or ", absl::StrJoin(answer.missing_rates, ", "), ".\n",
                        TrainersNumber(answer));
  }
  const bool runs = EngineRunsOn(answer.job.hardware);
  absl::StrAppend(&text, runs ? " A step takes " : " A step on this hardware would take ",
                  Seconds(f.step_seconds));
  if (f.tokens_per_second > 0) absl::StrAppendFormat(&text, ": %.0f tokens/s", f.tokens_per_second);
  return absl::StrCat(text, ".\n", TrainersNumber(answer));
}

// The parts of the plan, each with what today's engine does.
std::string EngineTable(const PlanAnswer& answer, const Style& style) {
  Table table({{"PART"}, {"PLAN"}, {"TODAY"}});
  for (const EnginePart& part : EngineParts(answer.forecast, answer.job.hardware)) {
    table.AddRow(
        {part.part, part.planned,
         absl::StrCat(part.executed ? "yes" : "no", part.today.empty() ? "" : ": ", part.today)});
  }
  return absl::StrCat(table.Render(style), "\n");
}

// Explains a device's weights: those that are updated there are stored besides the gathered ones.
std::string TwoCopies(const PlanAnswer& answer) {
  const std::uint64_t updated = forecast::UpdatedWeightBytes(answer.forecast);
  const std::uint64_t all = answer.forecast.plan.tier(Tier::kDevice).of(planner::Owner::kWeights);
  if (updated == 0 || updated >= all) return "";
  return absl::StrCat("Of the weights on the device ", base::FormatBytes(all - updated),
                      " are gathered for the operators, in chunks with their padding, and ",
                      base::FormatBytes(updated), " belong to the state that is updated there.\n");
}

std::string TierTable(const PlanAnswer& answer, const Style& style) {
  Table table({{"TIER"},
               {"OF"},
               {"PEAK", Align::kRight},
               {"LIMIT", Align::kRight},
               {"BYTES/PARAMETER", Align::kRight},
               {"WEIGHTS", Align::kRight},
               {"OPTIMIZER", Align::kRight},
               {"GRADIENTS", Align::kRight},
               {"ACTIVATIONS", Align::kRight},
               {"WORKSPACE", Align::kRight},
               {"STAGING", Align::kRight}});
  for (const Tier tier : kTiers) {
    const TierBytes& bytes = answer.forecast.plan.tier(tier);
    if (tier == Tier::kDisk && bytes.limit == 0 && bytes.peak == 0) continue;
    const std::uint64_t ranks = RanksBehind(answer, tier);
    const bool unlimited = tier == Tier::kHost && !answer.host_is_given;
    std::vector<std::string> row = {
        planner::TierName(tier), tier == Tier::kDevice ? "rank" : "node",
        base::FormatBytes(bytes.peak * ranks),
        unlimited ? "" : base::FormatBytes(bytes.limit * ranks),
        absl::StrFormat("%.2f", forecast::BytesPerParameter(answer.forecast, answer.job, tier))};
    for (const std::uint64_t owner : bytes.by_owner) {
      row.push_back(base::FormatBytes(owner * ranks));
    }
    table.AddRow(std::move(row));
  }
  return absl::StrCat(table.Render(style), TwoCopies(answer));
}

std::string LeastHost(const PlanAnswer& answer) {
  if (!answer.least_host_bytes.has_value()) return "";
  if (*answer.least_host_bytes == 0) return "It needs no host memory.\n";
  return absl::StrCat("It would fit with as little as ",
                      base::FormatBytes(*answer.least_host_bytes),
                      " of host memory in each node.\n");
}

std::string Movement(const PlanAnswer& answer) {
  const forecast::Forecast& f = answer.forecast;
  const planner::Plan& plan = f.plan.device_plan;
  std::string text;
  if (plan.h2d_bytes > 0) {
    absl::StrAppendFormat(
        &text, "Weights up: %s a step and rank, %.3f of the least possible.\n",
        base::FormatBytes(plan.h2d_bytes),
        static_cast<double>(plan.h2d_bytes) /
            static_cast<double>(std::max<std::uint64_t>(plan.lower_bound_bytes, 1)));
  }
  if (f.collective_seconds > 0) {
    absl::StrAppend(&text, "Gathering and reducing between ranks takes ",
                    Seconds(f.collective_seconds), " beside that",
                    f.bound_by_collectives ? ", and bounds the step.\n" : ".\n");
  }
  return text;
}

std::string Changes(const PlanAnswer& answer) {
  if (answer.changes.empty()) return "No single change makes it fit.\n";
  std::string text = "Any one of these changes makes it fit, each the smallest that does:\n";
  for (const forecast::Change& change : answer.changes) {
    absl::StrAppend(&text, "  ", change.text, "\n");
  }
  return text;
}

}  // namespace

std::string PlanText(const PlanAnswer& answer, const Style& style) {
  const forecast::Forecast& f = answer.forecast;
  const std::string what =
      absl::StrCat(Heading(answer), Verdict(answer), "\n", TierTable(answer, style), "\n");
  if (!f.fits()) return absl::StrCat(what, Changes(answer));
  const std::string today = absl::StrCat(what, EngineTable(answer, style));
  // The planner's choice among the plans that fit depends on rates.
  if (!answer.rates_are_known()) return absl::StrCat(today, LeastHost(answer));
  return absl::StrCat(today, Movement(answer), LeastHost(answer),
                      planner::ExplainTierPlan(f.problem, f.plan));
}

std::string ModelList(const Style& style) {
  Table table({{"MODEL"},
               {"PARAMETERS", Align::kRight},
               {"LAYERS", Align::kRight},
               {"HIDDEN", Align::kRight},
               {"HEADS", Align::kRight},
               {"KV_HEADS", Align::kRight},
               {"MLP", Align::kRight},
               {"VOCABULARY", Align::kRight},
               {"CONTEXT", Align::kRight}});
  for (const forecast::CatalogueEntry& entry : forecast::Catalogue()) {
    const forecast::Model& m = entry.model;
    table.AddRow({m.name, absl::StrCat(forecast::CountParameters(m)), absl::StrCat(m.layers),
                  absl::StrCat(m.hidden), absl::StrCat(m.heads), absl::StrCat(m.kv_heads),
                  absl::StrCat(m.intermediate), absl::StrCat(m.vocabulary),
                  absl::StrCat(m.position_rows())});
  }
  Table families({{"FAMILY"}, {"MEMBERS"}});
  for (const forecast::Family& family : forecast::Families()) {
    families.AddRow({family.name, family.description});
  }
  return absl::StrCat(table.Render(style), "\n", families.Render(style));
}

std::string HardwareList(const Style& style) {
  Table table({{"HARDWARE"},
               {"MEMORY", Align::kRight},
               {"USABLE", Align::kRight},
               {"TFLOP/S", Align::kRight},
               {"ACHIEVED", Align::kRight},
               {"BANDWIDTH", Align::kRight},
               {"UP", Align::kRight},
               {"DOWN", Align::kRight},
               {"PEER", Align::kRight},
               {"NETWORK", Align::kRight},
               {"DRAM", Align::kRight}});
  const auto rate = [](double bytes) { return absl::StrFormat("%gGB/s", bytes * 1e-9); };
  for (const forecast::Hardware& h : forecast::HardwareTable()) {
    table.AddRow({h.name, base::FormatBytes(h.device_bytes), base::FormatBytes(h.usable_bytes()),
                  absl::StrFormat("%g", h.flops * 1e-12), absl::StrFormat("%g", h.achieved_share),
                  rate(h.device_memory_bytes_per_second), rate(h.up_bytes_per_second),
                  rate(h.down_bytes_per_second), rate(h.peer_bytes_per_second),
                  rate(h.network_bytes_per_second), rate(h.host_memory_bytes_per_second)});
  }
  return table.Render(style);
}

}  // namespace geminid::ctl
