// The offer of a run with --ranks MIN:MAX: its first rank tells the daemon, which may change the
// number of ranks, the goodput that the run would have with each number.
#ifndef GEMINID_TRAINING_RANKS_SHARE_OFFER_H_
#define GEMINID_TRAINING_RANKS_SHARE_OFFER_H_

#include <cstdint>
#include <vector>

#include "client/src/job_scaling.h"
#include "training/goodput/ranks_model.h"
#include "training/ranks/rank_session.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// The figures of a finished step.
struct ShareStep {
  double sequences = 0;  // 0: unknown
  double seconds = 0;
  uint64_t sequences_left = 0;  // of the run, after it
};

// The times of steps are stored in the launcher's memory, where later groups of ranks find them. So
// the speed of a number of ranks that was tried stays known.
class ShareOffer {
 public:
  // Both outlive this object. The context has a HandoverMemory with a range.
  ShareOffer(const TrainOptions& options, const RankContext& context)
      : options_(options), context_(context) {}

  void AfterStep(const ShareStep& step);
  // `arena_bytes`: the arena of a rank.
  JobScaling::Share Make(uint64_t arena_bytes) const;

 private:
  RanksRange Range() const;
  std::vector<int> Numbers() const;

  const TrainOptions& options_;
  const RankContext& context_;
  SequenceTimer timer_;
  uint64_t sequences_left_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_SHARE_OFFER_H_
