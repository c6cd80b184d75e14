// geminictl explain: why a chunk is where it is.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_EXPLAIN_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_EXPLAIN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

// "3/42", or "42" if one session is attached.
struct ChunkName {
  std::optional<uint64_t> session;
  uint32_t chunk = 0;
};
absl::StatusOr<ChunkName> ParseChunkName(const std::string& text);

// NOT_FOUND if there is no such chunk. INVALID_ARGUMENT if `name` has no session and several
// sessions are attached.
absl::StatusOr<int> RunExplain(const Context& context, const ChunkName& name);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_EXPLAIN_H_
