// geminictl ls: sessions, chunks and pools.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_LIST_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_LIST_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/v1/admin.pb.h"
#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

absl::StatusOr<int> RunListSessions(const Context& context);
absl::StatusOr<int> RunListPools(const Context& context);

// "on host", "on device", both, in transfer, or "not made" for a chunk without bytes.
std::string WhereIs(const v1::ChunkInfo& chunk);

struct ListChunksOptions {
  uint64_t session = 0;  // 0: all
  uint32_t limit = 1000;
};

// NOT_FOUND if options.session is not attached.
absl::StatusOr<int> RunListChunks(const Context& context, const ListChunksOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_LIST_H_
