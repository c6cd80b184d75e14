// How a run ends before its last step.
#ifndef GEMINID_TRAINING_RUN_RUN_END_H_
#define GEMINID_TRAINING_RUN_RUN_END_H_

namespace geminid::trainer {

// How training ended: at most one is set.
struct TrainEnd {
  int signal = 0;         // some rank was asked to stop by it
  bool diverged = false;  // the loss was not finite, and --stop-on-nan given
  bool spent = false;     // a rank may write no more to disk (--state-disk-endurance)

  bool is_early() const { return signal != 0 || diverged || spent; }
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_RUN_END_H_
