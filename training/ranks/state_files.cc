#include "training/ranks/state_files.h"

#include <cstdlib>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
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
  std::vector<std::string> paths;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string file = disk::NameOfFiles(NameOfRank(options.job, rank, RunName(*info)));
    for (const std::string& folder : options.zero.state_disk.folders) {
      paths.push_back(absl::StrCat(folder, "/", file));
    }
  }
  disk::RemoveFiles(paths, /*identity=*/{});
}

}  // namespace geminid::trainer
