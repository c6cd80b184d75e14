#include "training/logs/remaining.h"

namespace geminid::trainer {
namespace {

// Multiples of `every` after `done` up to `steps`; the last step counts as one.
uint64_t TimesLeft(uint64_t done, uint64_t steps, uint64_t every) {
  if (done >= steps) return 0;
  const bool adds_last = every == 0 || steps % every != 0;
  return (every == 0 ? 0 : steps / every - done / every) + (adds_last ? 1 : 0);
}

}  // namespace

double RemainingSeconds(const Pace& pace) {
  double seconds = pace.step_seconds * static_cast<double>(pace.steps - pace.done);
  if (pace.validation_every > 0) {
    seconds += pace.validation_seconds *
               static_cast<double>(TimesLeft(pace.done, pace.steps, pace.validation_every));
  }
  if (pace.saves) {
    seconds += pace.last_save_seconds;
    const uint64_t saves = TimesLeft(pace.done, pace.steps, pace.save_every);
    seconds += pace.save_seconds * static_cast<double>(saves);
  }
  return seconds;
}

}  // namespace geminid::trainer
