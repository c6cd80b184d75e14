#include "training/run/start_lines.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "training/ranks/arithmetic.h"

namespace geminid::trainer {

std::vector<std::string> StartLines(const StartFacts& facts) {
  const Report& report = facts.report;
  const TrainOptions& options = report.options;
  std::vector<std::string> lines = {
      absl::StrCat(CountParameters(options.model), " parameters, ", facts.ranks,
                   facts.ranks == 1 ? " rank of " : " ranks of ", report.threads,
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
  if (!facts.mesh.empty()) lines.push_back(absl::StrCat("cut over the ranks: ", facts.mesh));
  const bool on_gpu = report.computes_on != "host";
  for (const auto& [what, by] : {std::pair("products: ", &report.products_by),
                                 std::pair("attention: ", &report.attention_by)}) {
    if (on_gpu && !by->empty()) lines.push_back(absl::StrCat(what, *by));
  }
  lines.push_back(
      absl::StrCat("activations ", Name(report.activations), ": ", facts.why_activations));
  return lines;
}

}  // namespace geminid::trainer
