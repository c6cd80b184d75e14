// Prints the phase of a process and its progress when a phase takes longer than people would wait
// without a message.
#ifndef GEMINID_TRAINING_LOGS_PHASE_H_
#define GEMINID_TRAINING_LOGS_PHASE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace geminid::trainer {

struct PhaseProgress {
  uint64_t done = 0;
  uint64_t of = 0;             // 0: unknown
  const char* unit = nullptr;  // null: bytes
};

struct Patience {
  std::chrono::milliseconds first{2000};  // until the first message
  std::chrono::milliseconds then{5000};   // between messages
};

// Decides when to print. It has no clock: callers pass the time. One thread at a time.
class Phase {
 public:
  using Clock = std::chrono::steady_clock;

  Phase(std::string what, Clock::time_point began, Patience patience = {});

  bool IsDue(Clock::time_point now) const { return now >= next_; }
  Clock::time_point next() const { return next_; }
  // The message, if one is due at this time: "geminid-train: validation: 12 of 80 micro-batches,
  // 4 s so far".
  std::optional<std::string> LineAt(Clock::time_point now, const PhaseProgress& far);

 private:
  const std::string what_;
  const Clock::time_point began_;
  const Patience patience_;
  Clock::time_point next_;
};

// Prints from a thread of its own, because a phase is often one long call. There is one phase at a
// time, and one thread begins and ends it.
class PhaseTeller {
 public:
  using Write = std::function<void(const std::string& line)>;
  // Called by the PhaseTeller's thread, and never after the end of its phase.
  using ReadProgress = std::function<PhaseProgress()>;

  // The PhaseTeller's thread calls `write`. Null: nothing is printed, and there is no thread.
  explicit PhaseTeller(Write write, Patience patience = {})
      : write_(std::move(write)), patience_(patience) {}
  ~PhaseTeller();
  PhaseTeller(const PhaseTeller&) = delete;
  PhaseTeller& operator=(const PhaseTeller&) = delete;

  // Ends the previous phase. Null: the progress is unknown, and messages have the time alone.
  void Begin(std::string what, ReadProgress read_progress = nullptr);
  void End();

 private:
  void Run();

  const Write write_;
  const Patience patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Phase> phase_;
  ReadProgress read_progress_;
  bool over_ = false;
  std::thread thread_;
};

// A phase for as long as this lives.
class InPhase {
 public:
  InPhase(PhaseTeller* teller, std::string what, PhaseTeller::ReadProgress read_progress = nullptr)
      : teller_(teller) {
    teller_->Begin(std::move(what), std::move(read_progress));
  }
  ~InPhase() { teller_->End(); }
  InPhase(const InPhase&) = delete;
  InPhase& operator=(const InPhase&) = delete;

 private:
  PhaseTeller* const teller_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_PHASE_H_
