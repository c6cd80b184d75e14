#include "tools/sim/elastic/elastic.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json_writer.h"

namespace geminid::sim {
namespace {

struct Line {
  const char* key;
  const char* words;
  uint64_t value;
};

std::vector<Line> LinesOf(const ElasticTally& tally, uint64_t runs) {
  return {{"runs", "runs", runs},
          {"finished", "runs that reached their last step", tally.finished},
          {"most_ranks", "most ranks of a start", static_cast<uint64_t>(tally.most_ranks)},
          {"starts", "starts of all ranks", tally.starts},
          {"deaths", "deaths", tally.deaths},
          {"requests_done", "requests done", tally.done},
          {"requests_refused", "requests refused", tally.refused},
          {"ranks_joined", "ranks that joined", tally.joined},
          {"ranks_left", "ranks that left", tally.left},
          {"shrunk", "changes to fewer ranks after a death", tally.shrunk},
          {"gone_back", "changes that went back", tally.fell_back},
          {"steps_lost", "committed steps that were lost", 0},
          {"requests_unanswered", "requests without an answer", 0}};
}

}  // namespace

absl::Status RunElastic(const ElasticOptions& options, bool json, std::ostream& out) {
  ElasticTally tally;
  for (uint64_t run = 0; run < options.runs; ++run) {
    const uint64_t seed = options.seed + run;
    const std::string wrong = ElasticRun(seed, options.settings).Live(&tally);
    if (!wrong.empty()) return absl::InternalError(absl::StrCat("run of seed ", seed, ": ", wrong));
  }
  const std::vector<Line> lines = LinesOf(tally, options.runs);
  if (!json) {
    for (const Line& line : lines) out << absl::StreamFormat("%12d  %s\n", line.value, line.words);
    return absl::OkStatus();
  }
  base::JsonWriter writer;
  writer.BeginObject();
  for (const Line& line : lines) writer.Key(line.key).Value(line.value);
  writer.EndObject();
  out << writer.text() << "\n";
  return absl::OkStatus();
}

}  // namespace geminid::sim
