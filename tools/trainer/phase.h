// Says how far something is that takes longer than people wait without a word.
#ifndef GEMINID_TOOLS_TRAINER_PHASE_H_
#define GEMINID_TOOLS_TRAINER_PHASE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace geminid::trainer {

class Phase {
 public:
  using Clock = std::chrono::steady_clock;
  using Write = std::function<void(const std::string& line)>;

  // "checking tokens". A null `write` says nothing.
  Phase(std::string what, Write write, Clock::time_point now = Clock::now());

  // "geminid-train: checking tokens: 1.2 GiB of 7.5 GiB", two seconds after the beginning and then
  // every five seconds.
  void Bytes(uint64_t done, uint64_t of, Clock::time_point now = Clock::now());
  // "geminid-train: validation: 12 of 80 micro-batches".
  void Count(uint64_t done, uint64_t of, const char* unit, Clock::time_point now = Clock::now());

 private:
  void Say(Clock::time_point now, const std::string& how_far);
  bool IsDue(Clock::time_point now) const { return write_ && now >= next_; }

  const std::string what_;
  const Write write_;
  Clock::time_point next_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_PHASE_H_
