#include "tools/geminictl/plan/plan_parallel_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/bytes.h"
#include "base/counted.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/table.h"

namespace geminid::ctl {
namespace {

using base::FormatBytes;
using parallel::Choice;
using parallel::PlannedMesh;

std::string Seconds(double seconds) { return absl::StrFormat("%.3g s", seconds); }

std::string Size(double bytes) { return FormatBytes(static_cast<std::uint64_t>(bytes)); }

std::string Heading(const forecast::Model& model) {
  return absl::StrFormat("%s: %.3g billion parameters\n", Printable(model.name),
                         static_cast<double>(CountParameters(model)) * 1e-9);
}

std::string Cluster(const ParallelAnswer& answer) {
  const forecast::Job& job = answer.job;
  std::string text = absl::StrCat(
      job.ranks, " x ", job.hardware.name, " with ", FormatBytes(job.hardware.usable_bytes()),
      " usable in ", job.nodes, job.nodes == 1 ? " node" : " nodes", ", each with ",
      answer.host_is_given ? absl::StrCat(FormatBytes(job.host_bytes), " of host memory")
                           : std::string("as much host memory as it takes"),
      "\n", job.batch.sequences * job.ranks, " x ", job.batch.sequence_length,
      " tokens in a step of all ranks, ", job.optimizer.words(), "\n");
  for (const std::string& note : answer.notes) absl::StrAppend(&text, note, "\n");
  return absl::StrCat(text, "\n");
}

std::string InWords(const PlannedMesh& planned, const forecast::Job& job) {
  const parallel::Setting& setting = planned.setting;
  const std::uint64_t all = job.batch.sequences * job.ranks;
  const std::uint64_t each =
      all / static_cast<std::uint64_t>(setting.mesh.data) / setting.micro_batches;
  return absl::StrCat("--parallel ", ToString(setting.mesh), ", ", setting.micro_batches,
                      setting.micro_batches == 1 ? " micro-batch of " : " micro-batches of ", each,
                      each == 1 ? " sequence" : " sequences", ", activations ",
                      ActivationsName(setting.activations));
}

std::string Verdict(const ParallelAnswer& answer) {
  const Choice& choice = answer.choice;
  const PlannedMesh& best = choice.planned.front();
  if (choice.fits()) {
    return absl::StrCat(
        answer.only.has_value() ? "Planned: " : "Chosen: ", InWords(best, answer.job),
        ".\nA step on this hardware would take ", Seconds(best.step_seconds),
        absl::StrFormat(": %.0f tokens/s. ", best.tokens_per_second), "A rank takes ",
        FormatBytes(best.device_bytes), " of its device and ", FormatBytes(best.host_bytes),
        " of host memory, at most.\n");
  }
  std::string text =
      absl::StrCat(answer.only.has_value() ? "It does not fit" : "No mesh fits",
                   ": the smallest device memory that ", "was planned is ",
                   FormatBytes(best.device_bytes), ", by ", InWords(best, answer.job), ".\n");
  if (answer.nearest.has_value()) {
    absl::StrAppend(&text, "The nearest that fits: ", InWords(*answer.nearest, answer.job), "; ",
                    Seconds(answer.nearest->step_seconds), " a step, ",
                    FormatBytes(answer.nearest->device_bytes), " of a device.\n");
  } else {
    absl::StrAppend(&text,
                    "Shorter sequences, a smaller --batch, more memory or more ranks may help.\n");
  }
  return text;
}

std::string ChoiceTable(const ParallelAnswer& answer, const Style& style) {
  Table table({{"MESH"},
               {"MICRO-BATCHES", Align::kRight},
               {"ACTIVATIONS"},
               {"STEP", Align::kRight},
               {"COMPUTE", Align::kRight},
               {"EXCHANGES", Align::kRight},
               {"SHARING", Align::kRight},
               {"UPDATE", Align::kRight},
               {"BUBBLE", Align::kRight},
               {"RECEIVED", Align::kRight},
               {"PARTNERS", Align::kRight},
               {"DEVICE_MEM", Align::kRight},
               {"HOST_MEM", Align::kRight}});
  const auto seconds = [](const PlannedMesh& planned, double value) {
    return planned.fits ? Seconds(value) : "";
  };
  std::size_t rows = 0;
  for (const PlannedMesh& planned : answer.choice.planned) {
    if (++rows > kRowsShown) break;
    table.AddRow({ToString(planned.setting.mesh), absl::StrCat(planned.setting.micro_batches),
                  ActivationsName(planned.setting.activations),
                  planned.fits ? Seconds(planned.step_seconds) : "no-room",
                  Seconds(planned.cost.compute_seconds), Seconds(planned.cost.exchange_seconds),
                  seconds(planned, planned.sharing_seconds),
                  seconds(planned, planned.update_seconds),
                  planned.fits ? absl::StrFormat("%.1f %%", 100 * planned.bubble) : "",
                  Size(planned.fits ? planned.received_bytes : planned.cost.received_bytes),
                  absl::StrCat(planned.cost.partners), FormatBytes(planned.device_bytes),
                  FormatBytes(planned.host_bytes)});
  }
  return table.Render(style);
}

std::string Counts(const ParallelAnswer& answer) {
  const Choice& c = answer.choice;
  std::string text =
      absl::StrCat("Looked at: ", c.settings, c.settings == 1 ? " setting" : " settings",
                   " of mesh, micro-batches and recomputation. With more activations than a device "
                   "has room for: ",
                   c.too_large, ". Planned rank by rank: ", c.planned.size());
  if (c.for_comparison > 0) {
    absl::StrAppend(&text, ", of which ", c.for_comparison, " only to compare kinds of meshes");
  }
  if (c.bounded_out > 0) {
    absl::StrAppend(&text,
                    ". With a least time that is longer than the shortest step: ", c.bounded_out);
  }
  if (c.not_planned > 0) {
    absl::StrAppend(&text, ". Not planned, so that one of them may be faster: ", c.not_planned);
  }
  absl::StrAppend(&text, ".");
  if (c.meshes_not_cut > 0) {
    absl::StrAppend(&text, " Meshes that do not divide the model: ", c.meshes_not_cut, ".");
  }
  return absl::StrCat(text, "\n");
}

std::string Unit(const forecast::Constant& constant) {
  const std::string unit = constant.unit;
  if (unit == "B") return Size(constant.value);
  if (unit == "B/s") return absl::StrFormat("%g GB/s", constant.value * 1e-9);
  if (unit == "/s") return absl::StrFormat("%g T/s", constant.value * 1e-12);
  if (unit == "s") return absl::StrFormat("%g us", constant.value * 1e6);
  return absl::StrFormat("%g", constant.value);
}

std::string Sources(const forecast::Hardware& hardware, const Style& style) {
  Table table({{"CONSTANT"}, {"VALUE", Align::kRight}, {"SOURCE"}});
  for (const forecast::Constant& constant : ConstantsOf(hardware)) {
    table.AddRow(
        {absl::StrReplaceAll(constant.name, {{" ", "-"}}), Unit(constant), constant.source});
  }
  return table.Render(style);
}

constexpr char kNotAllTrained[] =
    "geminid-train does not train every mesh that is planned here; docs/parallelism.md says "
    "which.\n";

}  // namespace

const char* ActivationsName(forecast::Activations activations) {
  switch (activations) {
    case forecast::Activations::kRecompute:
      return "recomputed";
    case forecast::Activations::kKeep:
      return "kept";
    case forecast::Activations::kOffload:
      return "offloaded";
  }
  return "?";
}

std::string ParallelText(const ParallelAnswer& answer, const Style& style) {
  return absl::StrCat(Heading(answer.model), Cluster(answer), Verdict(answer), kNotAllTrained, "\n",
                      ChoiceTable(answer, style), Counts(answer), "\n",
                      Sources(answer.job.hardware, style));
}

std::string ComparedText(const ComparedAnswer& answer, const Style& style) {
  const forecast::Job& job = answer.job;
  std::string text = Heading(answer.model);
  absl::StrAppend(&text, job.hardware.name, ", nodes of ",
                  base::Counted(answer.ranks_per_node, "rank"), "; ", job.batch.sequences, " x ",
                  job.batch.sequence_length,
                  " tokens in one pass of all ranks, sharded as if all sizes were divisible\n\n");
  Table table({{"RANKS", Align::kRight},
               {"MODE"},
               {"RECEIVED", Align::kRight},
               {"PARTNERS", Align::kRight},
               {"ACTIVATIONS", Align::kRight},
               {"STATE", Align::kRight},
               {"DEVICE_MEM", Align::kRight},
               {"HOST_MEM", Align::kRight},
               {"STEP", Align::kRight}});
  for (const parallel::ComparedGrid& grid : answer.grids) {
    const PlannedMesh& planned = grid.planned;
    const std::string depth = grid.mesh.depth > 1 ? absl::StrCat(":depth=", grid.mesh.depth) : "";
    table.AddRow({absl::StrCat(grid.mesh.tensor),
                  absl::StrCat(collectives::Name(grid.mesh.tensor_mode), depth),
                  Size(planned.fits ? planned.received_bytes : planned.cost.received_bytes),
                  absl::StrCat(planned.cost.partners), Size(grid.activation_bytes),
                  Size(grid.state_bytes), FormatBytes(planned.device_bytes),
                  FormatBytes(planned.host_bytes),
                  planned.fits ? Seconds(planned.step_seconds) : "no-room"});
  }
  return absl::StrCat(text, table.Render(style));
}

}  // namespace geminid::ctl
