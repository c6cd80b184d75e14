// Finds this process's rank and job in its launcher's environment variables.
#ifndef GEMINID_RANK_INFO_H_
#define GEMINID_RANK_INFO_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/export.h"

namespace geminid::collectives {

struct GEMINID_EXPORT RankInfo {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;            // number among this host's ranks, and of the GPU
  int local_world_size = 0;      // 0: the launcher did not say
  std::string master_address{};  // of rank 0's host; empty: the launcher did not say
  uint16_t master_port = 29500;
  std::string job{};  // tells jobs of one user apart; may be empty

  // True if all ranks are known to be on this host.
  bool OnOneHost() const;
};

// Returns the value of an environment variable, or null.
using Environment = std::function<const char*(const char*)>;

// Uses the first of these launchers whose variables are set:
//   torchrun and by hand  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//   Open MPI              OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   MPICH, Intel MPI      PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
//   Slurm (srun)          SLURM_STEP_ID with _PROCID, _NTASKS, _LOCALID, _STEP_NUM_NODES
// and, with any of them, MASTER_ADDR and MASTER_PORT. GEMINID_MASTER_PORT replaces MASTER_PORT for
// launchers that use that port themselves. Under torchrun's agent store, which does, the default is
// MASTER_PORT + 1. The job is GEMINID_JOB_ID, or else the launcher's own id.
// No variables: a job of one process. INVALID_ARGUMENT names a variable that is missing, is not a
// number, or contradicts another.
GEMINID_EXPORT absl::StatusOr<RankInfo> RankInfoFrom(const Environment& environment);
GEMINID_EXPORT absl::StatusOr<RankInfo> FromEnvironment();

}  // namespace geminid::collectives

#endif  // GEMINID_RANK_INFO_H_
