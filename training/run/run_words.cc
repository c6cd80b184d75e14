#include "training/run/run_words.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "geminid/checkpoint.h"
#include "training/launch/stop_signals.h"
#include "training/ranks/arithmetic.h"

namespace geminid::trainer {
namespace {

// Why it ended; empty: as it was to, with nothing to say of it.
std::string Why(const EndFacts& facts) {
  const Report& report = facts.report;
  const TrainOptions& options = report.options;
  const uint64_t steps = StepsOf(report);
  const uint64_t done = report.first_step + report.losses.size();
  if (facts.end.signal != 0) {
    return absl::StrCat("stopped at step ", done, " of ", steps, " by ",
                        SignalName(facts.end.signal));
  }
  if (facts.end.diverged) {
    return absl::StrCat("stopped at step ", done, " of ", steps, " by --stop-on-nan");
  }
  if (facts.end.spent) {
    return absl::StrCat("stopped at step ", done, " of ", steps,
                        ", since the next one would write more to disk than --state-disk-endurance "
                        "allows a rank; go on with a larger one, or without --state-disk");
  }
  if (facts.end.no_data) {
    return absl::StrCat("stopped at step ", done, " of ", steps,
                        ", since the data of the next one cannot be read");
  }
  if (report.non_finite_losses > 0) {
    return absl::StrCat("the loss of ", report.non_finite_losses, " of ", steps,
                        " steps was not finite, first that of step ", report.first_non_finite_step);
  }
  return !facts.saved_in.empty() || !options.export_to.empty() ? "done" : "";
}

// The state of a run that diverged is not saved.
std::string LastHealthy(const std::string& folder) {
  if (folder.empty()) return "";
  const absl::StatusOr<std::string> healthy = checkpoint::Newest(folder);
  if (!healthy.ok()) return "; no good checkpoint was saved before";
  return absl::StrCat("; ", *healthy, " is the last good checkpoint, --resume goes on from there");
}

}  // namespace

std::vector<std::string> StartLines(const Report& report, int ranks, const std::string& mesh,
                                    const std::string& why_activations) {
  const TrainOptions& options = report.options;
  std::vector<std::string> lines = {
      absl::StrCat(CountParameters(options.model), " parameters, ", ranks,
                   ranks == 1 ? " rank of " : " ranks of ", report.threads,
                   report.threads == 1 ? " thread, " : " threads, ",
                   Arithmetic(options.zero.data_type, report.native_data_type), ", ",
                   Name(options.zero.optimizer),
                   options.zero.state_type == zero::DataType::kBFloat16 ? " with bf16 state" : "",
                   ", placement ", Name(options.zero.placement), ", ", report.tokens_per_step,
                   " tokens per step")};
  if (InstructionSetIsLimited()) lines.push_back(LimitOfInstructionSets());
  lines.push_back(absl::StrCat("data: ", Describe(report.data)));
  for (const std::string& what : report.data.left_out) {
    lines.push_back(absl::StrCat("data left out: ", what));
  }
  if (report.samples_per_epoch > 0) {
    lines.push_back(absl::StrCat("order: ", Name(options.sampling), ", ", report.samples_per_epoch,
                                 " sequences an epoch, ", options.schedule.steps, " steps of ",
                                 report.tokens_per_step / options.model.context));
  }
  if (!mesh.empty()) lines.push_back(absl::StrCat("sharded over the ranks: ", mesh));
  const bool on_gpu = report.computes_on != "host";
  for (const auto& [what, by] : {std::pair("products: ", &report.products_by),
                                 std::pair("attention: ", &report.attention_by)}) {
    if (on_gpu && !by->empty()) lines.push_back(absl::StrCat(what, *by));
  }
  lines.push_back(absl::StrCat("activations ", Name(report.activations), ": ", why_activations));
  return lines;
}

std::string EndWords(const EndFacts& facts) {
  const TrainOptions& options = facts.report.options;
  std::string words = Why(facts);
  if (words.empty()) return words;
  if (facts.end.diverged) {
    absl::StrAppend(&words, LastHealthy(options.save));
  } else if (!facts.saved_in.empty()) {
    absl::StrAppend(&words, "; saved in ", facts.saved_in);
  }
  if (!facts.end.is_early() && !options.export_to.empty()) {
    absl::StrAppend(&words, "; exported to ", options.export_to);
  }
  if (!options.report.empty()) absl::StrAppend(&words, "; the report is ", options.report);
  return words;
}

std::string DivergenceWords(uint64_t step, bool stops) {
  return absl::StrCat("geminid-train: the loss of step ", step,
                      " is not finite: training diverges; lower "
                      "--lr, lengthen --warmup-steps or check the text",
                      stops ? "" : " (--stop-on-nan ends such a run)");
}

}  // namespace geminid::trainer
