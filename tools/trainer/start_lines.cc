#include "tools/trainer/start_lines.h"

#include "absl/strings/str_cat.h"
#include "tools/trainer/flags/schedule_flags.h"

namespace geminid::trainer {

std::vector<std::string> StartLines(const StartFacts& facts) {
  const Report& report = facts.report;
  const TrainOptions& options = report.options;
  std::vector<std::string> lines = {
      absl::StrCat(CountParameters(options.model), " parameters, ", facts.ranks,
                   facts.ranks == 1 ? " rank of " : " ranks of ", report.threads,
                   report.threads == 1 ? " thread, " : " threads, ", facts.arithmetic, ", ",
                   Name(options.zero.optimizer),
                   options.zero.state_type == zero::DataType::kBFloat16 ? " with bf16 state" : "",
                   ", placement ", Name(options.zero.placement), ", ", report.tokens_per_step,
                   " tokens per step")};
  if (!facts.limit.empty()) lines.push_back(facts.limit);
  if (std::string note = WarmupNote(options.schedule); !note.empty()) lines.push_back(note);
  lines.push_back(absl::StrCat("data: ", Describe(report.data)));
  for (const std::string& what : report.data.left_out) {
    lines.push_back(absl::StrCat("data left out: ", what));
  }
  if (!facts.mesh.empty()) lines.push_back(absl::StrCat("cut over the ranks: ", facts.mesh));
  if (!facts.products.empty()) lines.push_back(absl::StrCat("products: ", facts.products));
  if (!facts.attention.empty()) lines.push_back(absl::StrCat("attention: ", facts.attention));
  lines.push_back(
      absl::StrCat("activations ", Name(report.activations), ": ", facts.why_activations));
  return lines;
}

}  // namespace geminid::trainer
