// The numbers of ranks that a run may have.
#ifndef GEMINID_TRAINING_LAUNCH_RANKS_RANGE_H_
#define GEMINID_TRAINING_LAUNCH_RANKS_RANGE_H_

namespace geminid::trainer {

// Both ends are included.
struct RanksRange {
  int least = 0;
  int most = 0;
  bool operator==(const RanksRange&) const = default;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RANKS_RANGE_H_
