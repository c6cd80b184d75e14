// Starts ranks as child processes of this host.
#ifndef GEMINID_TRAINING_LAUNCH_LOCAL_HOST_H_
#define GEMINID_TRAINING_LAUNCH_LOCAL_HOST_H_

#include <signal.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "training/launch/handover_memory.h"
#include "training/launch/rank_host.h"
#include "training/launch/rank_process.h"

namespace geminid::trainer {

// Tells a rank the process that started it; see IsLaunched().
inline constexpr char kLauncherVariable[] = "GEMINID_LAUNCHER_PID";

// Destroying it kills the ranks that still run.
class LocalHost final : public RankHost {
 public:
  // The ranks have this process's environment with `environment` and their own over it, and the
  // signal mask `signal_mask`.
  LocalHost(std::string program, Variables environment, const sigset_t& signal_mask);

  std::string name() const override { return ""; }
  absl::Status Start(const std::vector<RankStart>& starts) override;
  std::vector<RankState*> ranks() override;
  void Signal(int signal) override;
  void AddTo(std::vector<pollfd>* fds) const override;
  void Look(absl::Time now) override;

  // Ranks that start from now on have the memory of a handover, which outlives this. While there
  // is state in it, they start with the stop signals blocked: one that killed them before they
  // watch signals would lose it.
  void GiveHandover(const HandoverMemory* memory) { handover_ = memory; }
  // What one start left for the next in memory is of another number of ranks.
  void ForgetRunMemory() { run_memory_ = base::UniqueFd(); }

 private:
  absl::Status StartRanks(const std::vector<RankStart>& starts);
  sigset_t MaskOfRanks() const;

  const std::string program_;
  const Variables environment_;
  const sigset_t signal_mask_;
  base::UniqueFd run_memory_;  // of all starts of a number of ranks; once there was one
  const HandoverMemory* handover_ = nullptr;
  std::vector<RankProcess> processes_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_LOCAL_HOST_H_
