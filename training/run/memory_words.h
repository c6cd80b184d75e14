// The messages about a rank's memory during training. Each is printed once.
#ifndef GEMINID_TRAINING_RUN_MEMORY_WORDS_H_
#define GEMINID_TRAINING_RUN_MEMORY_WORDS_H_

#include <cstdint>
#include <string>

#include "geminid/rank_info.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "training/logs/progress.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// The warning once a rank has written nine tenths of its endurance limit to disk; empty before.
std::string DiskEnduranceWords(int rank, uint64_t written_bytes, uint64_t endurance_bytes);

class MemoryWords {
 public:
  // Both outlive it.
  MemoryWords(const TrainOptions& options, const collectives::RankInfo& info)
      : options_(options), info_(info) {}

  // Warns if the GPU's driver does not page-lock host memory: copies then run at a fraction of
  // their speed.
  void SayRefused(const HostRegistration& host, Progress* progress);
  // Whether SayStateDisk has a message left.
  bool HasStateDiskToSay() const;
  // First says how state on disk is read and written, later that the endurance is nearly spent.
  void SayStateDisk(const zero::Statistics& statistics, Progress* progress);

 private:
  void SayHow(const std::string& how, Progress* progress) const;

  const TrainOptions& options_;
  const collectives::RankInfo& info_;
  bool said_refused_ = false;
  bool said_how_ = false;
  bool said_endurance_ = false;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_MEMORY_WORDS_H_
