#include "tools/geminictl/plan_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "tools/forecast/catalogue.h"
#include "tools/geminictl/format.h"
#include "tools/geminictl/table.h"

namespace geminid::ctl {
namespace {

using planner::Tier;
using planner::TierBytes;

constexpr Tier kTiers[] = {Tier::kDevice, Tier::kHost, Tier::kDisk};

// Steps take from milliseconds to minutes.
std::string Seconds(double seconds) { return absl::StrFormat("%.3g s", seconds); }

// A device belongs to one rank, host and disk to all of a node.
std::uint64_t RanksBehind(const PlanAnswer& answer, Tier tier) {
  return tier == Tier::kDevice ? 1 : answer.job.ranks_per_node();
}

std::string Heading(const PlanAnswer& answer) {
  const forecast::Job& job = answer.job;
  std::string text = absl::StrFormat("%s: %.3g billion parameters", Printable(answer.subject),
                                     static_cast<double>(answer.forecast.parameters) * 1e-9);
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
                    " tokens per rank and step, ", job.optimizer.name());
  }
  for (const std::string& note : answer.notes) absl::StrAppend(&text, "\n", note);
  return absl::StrCat(text, "\n\n");
}

std::string Verdict(const PlanAnswer& answer) {
  const forecast::Forecast& f = answer.forecast;
  if (f.fits() && !answer.rates_are_known()) {
    return absl::StrCat("It fits. How long a step takes is not said: rates are unknown without ",
                        "--hardware, or ", absl::StrJoin(answer.missing_rates, ", "), ".\n");
  }
  if (f.fits()) {
    std::string text = absl::StrCat("It fits. A step takes ", Seconds(f.step_seconds));
    if (f.tokens_per_second > 0) {
      absl::StrAppendFormat(&text, ": %.0f tokens/s", f.tokens_per_second);
    }
    absl::StrAppend(&text, ".\n");
    return text;
  }
  std::string text = "It does not fit.";
  for (const Tier tier : kTiers) {
    const std::uint64_t lacking = f.plan.lacking[static_cast<std::size_t>(tier)];
    if (lacking == 0) continue;
    absl::StrAppend(&text, " The ", planner::TierName(tier),
                    tier == Tier::kDevice ? "" : " of a node", " lacks ",
                    base::FormatBytes(lacking * RanksBehind(answer, tier)), ".");
  }
  return absl::StrCat(text, "\n");
}

std::string TierTable(const PlanAnswer& answer, const Style& style) {
  Table table({{"TIER"},
               {"OF"},
               {"PEAK", Align::kRight},
               {"LIMIT", Align::kRight},
               {"B_PER_PARAMETER", Align::kRight},
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
  return table.Render(style);
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
  std::string text = "Any one of these makes it fit:\n";
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
  // Where there is a model, its changes have been tried, and say more than the planner's words.
  if (!f.fits() && answer.model.has_value()) return absl::StrCat(what, Changes(answer));
  // What the planner chose among the plans that fit rests on rates.
  if (f.fits() && !answer.rates_are_known()) return absl::StrCat(what, LeastHost(answer));
  return absl::StrCat(what, Movement(answer), LeastHost(answer),
                      planner::ExplainHierarchyPlan(f.problem, f.plan));
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
                  absl::StrCat(m.context)});
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
