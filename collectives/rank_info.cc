#include "geminid/rank_info.h"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

struct Launcher {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* host_count;
  const char* job;
  const char* step = nullptr;  // set by the launcher alone; null: all others are too
};

// srun exports its variables to everything below it, including torchrun and mpirun, so it comes
// last. Slurm sets most of them in the whole allocation: in the shell of salloc, and in the script
// of sbatch. Without a step ID there, srun did not start the process.
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", nullptr, "TORCHELASTIC_RUN_ID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, "PMIX_NAMESPACE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, "PMI_JOBID"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, "SLURM_STEP_NUM_NODES",
     "SLURM_JOB_ID", "SLURM_STEP_ID"},
};

// Step IDs of scripts and shells: Slurm's SLURM_INTERACTIVE_STEP, SLURM_BATCH_SCRIPT and
// SLURM_EXTERN_CONT are this number and above.
constexpr uint32_t kFirstStepOfNoTasks = 0xfffffffa;

const char* Get(const Environment& environment, const char* name) {
  const char* value = name == nullptr ? nullptr : environment(name);
  return value == nullptr || *value == '\0' ? nullptr : value;  // empty counts as unset
}

bool IsStepOfTasks(const char* step) {
  uint32_t number = 0;
  if (step == nullptr) return false;
  return !absl::SimpleAtoi(step, &number) || number < kFirstStepOfNoTasks;
}

// Decimal digits only: no sign, no blanks, nothing after them.
absl::StatusOr<std::optional<int>> Number(const Environment& environment, const char* name,
                                          int least, int most) {
  const char* text = Get(environment, name);
  if (text == nullptr) return std::optional<int>();
  int value = 0;
  const bool digits = std::string(text).find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(text, &value) || value < least || value > most) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s=\"%s\" is not a number from %d to %d", name, text, least, most));
  }
  return std::optional<int>(value);
}

absl::Status Contradiction(const char* name, int value, const char* other, int other_value) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s=%d contradicts %s=%d", name, value, other, other_value));
}

absl::Status ReadRanks(const Environment& environment, const Launcher& launcher, RankInfo* info) {
  constexpr int kMost = std::numeric_limits<int>::max();
  GEMINID_ASSIGN_OR_RETURN(auto rank, Number(environment, launcher.rank, 0, kMost));
  GEMINID_ASSIGN_OR_RETURN(auto world_size, Number(environment, launcher.world_size, 1, kMost));
  if (!rank.has_value() || !world_size.has_value()) {
    const bool no_rank = !rank.has_value();
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is set but %s is not; a launcher sets both",
                        no_rank ? launcher.world_size : launcher.rank,
                        no_rank ? launcher.rank : launcher.world_size));
  }
  info->rank = *rank;
  info->world_size = *world_size;
  if (info->rank >= info->world_size) {
    return Contradiction(launcher.rank, info->rank, launcher.world_size, info->world_size);
  }
  GEMINID_ASSIGN_OR_RETURN(auto local_rank, Number(environment, launcher.local_rank, 0, kMost));
  GEMINID_ASSIGN_OR_RETURN(auto local_size,
                           Number(environment, launcher.local_world_size, 1, kMost));
  GEMINID_ASSIGN_OR_RETURN(auto hosts, Number(environment, launcher.host_count, 1, kMost));
  const bool alone = info->world_size == 1 || hosts.value_or(0) == 1;
  info->local_world_size = local_size.value_or(alone ? info->world_size : 0);
  if (info->local_world_size > info->world_size) {
    return Contradiction(launcher.local_world_size, info->local_world_size, launcher.world_size,
                         info->world_size);
  }
  const bool one_host = info->local_world_size == info->world_size;
  info->local_rank = local_rank.value_or(one_host ? info->rank : 0);
  const bool counted = local_size.has_value();
  const int bound = counted ? info->local_world_size : info->world_size;
  if (info->local_rank >= bound) {
    return Contradiction(launcher.local_rank, info->local_rank,
                         counted ? launcher.local_world_size : launcher.world_size, bound);
  }
  return absl::OkStatus();
}

absl::Status ReadMaster(const Environment& environment, RankInfo* info) {
  constexpr int kMostPort = 65535;
  if (const char* address = Get(environment, "MASTER_ADDR")) info->master_address = address;
  GEMINID_ASSIGN_OR_RETURN(auto port, Number(environment, "MASTER_PORT", 1, kMostPort));
  GEMINID_ASSIGN_OR_RETURN(auto own_port, Number(environment, "GEMINID_MASTER_PORT", 1, kMostPort));
  if (port.has_value()) info->master_port = static_cast<uint16_t>(*port);
  if (own_port.has_value()) {
    info->master_port = static_cast<uint16_t>(*own_port);
    return absl::OkStatus();
  }
  const char* agent_store = Get(environment, "TORCHELASTIC_USE_AGENT_STORE");
  if (agent_store != nullptr && std::string(agent_store) == "True") {
    if (info->master_port == kMostPort) {
      return absl::InvalidArgumentError(
          "torchrun itself uses MASTER_PORT=65535; set GEMINID_MASTER_PORT to a free port");
    }
    ++info->master_port;
  }
  return absl::OkStatus();
}

}  // namespace

bool RankInfo::OnOneHost() const {
  return world_size == 1 || local_world_size == world_size || master_address == "localhost" ||
         master_address == "::1" || master_address.rfind("127.", 0) == 0;
}

absl::StatusOr<RankInfo> RankInfoFrom(const Environment& environment) {
  RankInfo info;
  info.local_world_size = 1;
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.step != nullptr && !IsStepOfTasks(Get(environment, launcher.step))) continue;
    if (Get(environment, launcher.rank) == nullptr &&
        Get(environment, launcher.world_size) == nullptr) {
      continue;
    }
    GEMINID_RETURN_IF_ERROR(ReadRanks(environment, launcher, &info));
    if (const char* job = Get(environment, launcher.job)) info.job = job;
    break;
  }
  if (const char* job = Get(environment, "GEMINID_JOB_ID")) info.job = job;
  GEMINID_RETURN_IF_ERROR(ReadMaster(environment, &info));
  return info;
}

absl::StatusOr<RankInfo> FromEnvironment() {
  return RankInfoFrom([](const char* name) { return std::getenv(name); });
}

}  // namespace geminid::collectives
