#include "training/ranks/state_files.h"

#include <cstdlib>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/disk/striped_files.h"
#include "client/src/session_internal.h"
#include "geminid/rank_info.h"
#include "training/launch/restarts.h"

namespace geminid::trainer {

void RemoveStateFiles(const TrainOptions& options, const std::string& job_id, int ranks) {
  const absl::StatusOr<collectives::RankInfo> info =
      collectives::RankInfoFrom([&](const char* name) -> const char* {
        if (std::string_view(name) == "GEMINID_JOB_ID") return job_id.c_str();
        return std::getenv(name);
      });
  if (!info.ok()) return;
  for (int rank = 0; rank < ranks; ++rank) {
    disk::RemoveFiles(disk::PathsOfFiles(options.zero.state_disk.folders,
                                         NameOfRank(options.job, rank, RunName(*info))),
                      /*identity=*/{});
  }
}

}  // namespace geminid::trainer
