// Runs one rank of `geminid-train generate`, which continues a text.
#ifndef GEMINID_TOOLS_TRAINER_GENERATE_H_
#define GEMINID_TOOLS_TRAINER_GENERATE_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "training/ranks/rank_session.h"

namespace geminid::trainer {

// Rank 0 passes the text to `write` token by token, or the tokens' numbers if tokens are no bytes.
// All ranks compute the same; weights that do not fit the arenas move as the plan says. Returns the
// signal that ended it early, or 0. Blocks; the other ranks must run at the same time.
absl::StatusOr<int> GenerateAsRank(
    const GenerateOptions& options, const RankContext& context,
    const std::function<absl::Status(const std::string& text)>& write);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_GENERATE_H_
