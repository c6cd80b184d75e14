#include "training/run/end_words.h"

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "geminid/checkpoint.h"
#include "training/launch/stop_signals.h"

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

std::string RefusedMemoryWords(int rank, const HostRegistration& host) {
  return absl::StrCat("geminid-train: rank ", rank, ": the GPU's driver does not page-lock ",
                      base::FormatBytes(host.refused_bytes), " of ", base::FormatBytes(host.bytes),
                      " of host memory, whose copies take a detour: ", host.refusal);
}

std::string DiskEnduranceWords(int rank, uint64_t written_bytes, uint64_t endurance_bytes) {
  if (endurance_bytes == 0 || written_bytes < endurance_bytes / 10 * 9) return "";
  return absl::StrCat("geminid-train: rank ", rank, " has written ",
                      base::FormatBytes(written_bytes), " of the ",
                      base::FormatBytes(endurance_bytes),
                      " that --state-disk-endurance allows; the run ends before it writes more");
}

}  // namespace geminid::trainer
