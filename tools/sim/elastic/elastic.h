// geminid-sim elastic: many runs whose ranks join, leave and die, and what happened in them.
#ifndef GEMINID_TOOLS_SIM_ELASTIC_ELASTIC_H_
#define GEMINID_TOOLS_SIM_ELASTIC_ELASTIC_H_

#include <cstdint>
#include <ostream>

#include "absl/status/status.h"
#include "tools/sim/elastic/elastic_run.h"

namespace geminid::sim {

struct ElasticOptions {
  ElasticSettings settings;
  uint64_t runs = 1000;
  uint64_t seed = 1;  // of the first run; each next one has the next seed
};

// Prints one table, or JSON. INTERNAL: a run lost a step, or a request got no answer; the message
// names the seed.
absl::Status RunElastic(const ElasticOptions& options, bool json, std::ostream& out);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_ELASTIC_ELASTIC_H_
