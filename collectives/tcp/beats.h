// Who is still there: both ends of a connection say so in beats, and whoever is silent for too long
// counts as dead. Pure: handed the time.
#ifndef GEMINID_COLLECTIVES_TCP_BEATS_H_
#define GEMINID_COLLECTIVES_TCP_BEATS_H_

#include <chrono>
#include <map>
#include <vector>

#include "absl/time/time.h"

namespace geminid::collectives {

inline constexpr absl::Duration kBeatInterval = absl::Milliseconds(100);
// A host that is gone is found out in this and a beat: within the two seconds that are promised.
inline constexpr absl::Duration kDefaultSilence = absl::Milliseconds(1200);
// With less a beat or two that come late would be a death.
inline constexpr absl::Duration kShortestSilence = absl::Milliseconds(500);

// Of a loop that in each turn takes the time, reads all that has come, and asks who is silent.
//
// Only time counts in which the loop runs: a turn is at most two intervals long, however long this
// process was stopped or had no processor. Others are not dead because we did not listen.
class Beats {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // InfiniteDuration(): nobody is ever dead.
  Beats(absl::Duration silence, Time now);

  // Whether beats are to be sent in this turn.
  bool Turn(Time now);
  // When the next turn must be at the latest, for poll(2).
  int MillisecondsLeft(Time now) const;

  void Heard(int who);
  void Forget(int who);
  // Of those that were heard, who has been silent for too long by the turn's time.
  std::vector<int> Silent() const;

 private:
  const absl::Duration silence_;
  Time turn_;
  Time beat_;
  absl::Duration awake_ = absl::ZeroDuration();  // since the beginning
  std::map<int, absl::Duration> heard_;          // by awake_
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_BEATS_H_
