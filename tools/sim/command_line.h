// The command line of geminid-sim, parsed and checked.
#ifndef GEMINID_TOOLS_SIM_COMMAND_LINE_H_
#define GEMINID_TOOLS_SIM_COMMAND_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/sim/elastic/elastic.h"
#include "tools/sim/policies/policy.h"
#include "tools/sim/simulation.h"

namespace geminid::sim {

enum class Subcommand { kRun, kCompare, kElastic };

// The source of the job: exactly one of trace, random and model is set for kRun, at most one for
// kCompare.
struct JobOptions {
  std::string trace;
  std::string random;
  std::string model;  // of the forecast's catalogue
  std::string hardware;
  uint64_t ranks = 1;
  uint64_t nodes = 1;
  uint64_t batch = 4;  // sequences of one rank
  uint64_t sequence = 1024;
  uint64_t host_bytes = 0;                             // of a node
  std::vector<std::pair<std::string, double>> fields;  // of the machine
  std::optional<uint64_t> device_bytes;
  std::optional<double> link_bytes_per_second;
  StateTier state = StateTier::kHost;  // of a trace; a model's plan decides
};

struct CommandLine {
  std::optional<Subcommand> subcommand;  // none: print `text`
  std::string text;
  JobOptions job;
  PolicySpec policy;
  std::optional<uint64_t> lookahead_moments;
  SimulationOptions simulation;
  uint64_t seeds = 1;
  bool json = false;
  std::string timeline;  // files to write; empty: none
  std::string memory_picture;
  std::string title;
  uint64_t traces = 0;  // kCompare without a job: random traces of each kind
  ElasticOptions elastic;  // kElastic
};

// `arguments` without the program's name. INVALID_ARGUMENT for every mistake in them.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

// "3@1.5": rank 3 at 1.5 s. "0@2+1": the daemon of node 0 at 2 s, for 1 s.
absl::StatusOr<Failure> ParseFailure(FailureKind kind, const std::string& text);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_COMMAND_LINE_H_
