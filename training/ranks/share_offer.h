// What the first rank of a run with --ranks MIN:MAX tells the daemon, which may change the number
// of its ranks: what the run would do with each.
#ifndef GEMINID_TRAINING_RANKS_SHARE_OFFER_H_
#define GEMINID_TRAINING_RANKS_SHARE_OFFER_H_

#include <cstdint>
#include <vector>

#include "client/src/job_scaling.h"
#include "training/goodput/ranks_model.h"
#include "training/ranks/rank_session.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// A step that is done.
struct ShareStep {
  double sequences = 0;  // 0: nothing is known of it
  double seconds = 0;
  uint64_t sequences_left = 0;  // of the run, after it
};

// Times of steps go to the launcher's memory, where later groups of ranks find them: a number of
// ranks that was tried is known from then on.
class ShareOffer {
 public:
  // Both outlive it; the context has a HandoverMemory with a range.
  ShareOffer(const TrainOptions& options, const RankContext& context)
      : options_(options), context_(context) {}

  void AfterStep(const ShareStep& step);
  // `arena_bytes`: that a rank has.
  JobScaling::Share Make(uint64_t arena_bytes) const;

 private:
  std::vector<int> Numbers() const;

  const TrainOptions& options_;
  const RankContext& context_;
  SequenceTimer timer_;
  uint64_t sequences_left_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_SHARE_OFFER_H_
