// geminictl ls: sessions, chunks and pools.
#ifndef GEMINID_TOOLS_GEMINICTL_LIST_H_
#define GEMINID_TOOLS_GEMINICTL_LIST_H_

#include <string>

#include "absl/status/statusor.h"
#include "geminid/v1/admin.pb.h"
#include "tools/geminictl/command_line.h"
#include "tools/geminictl/context.h"

namespace geminid::ctl {

absl::StatusOr<int> RunListSessions(const Context& context);
absl::StatusOr<int> RunListPools(const Context& context);

// "on host", "on device", both, on its way, or "not made" for a chunk without bytes.
std::string WhereIs(const v1::ChunkInfo& chunk);

// NOT_FOUND where options.session is not attached.
absl::StatusOr<int> RunListChunks(const Context& context, const ListChunksOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_LIST_H_
