// A deterministic world of both ends of the wire, and of what lies between and behind them.
//
// Clients whose requests, answers and copies go through the library's own port and transfers; rings
// in shared memory; links that copy real bytes, in pieces; the daemon's engine; and a holder that
// keeps the daemon's descriptors. One thread, one action at a time, all of them chosen by the seed.
// The daemon dies at any of its steps, also while it takes over from another. Until the next one is
// there, clients go on: they read answers, copy, and say that copies are done. At times the system
// lacks descriptors, from the n-th call on. The holder dies, and with the daemon, which ends
// sessions.
//
// What must hold, whatever happens:
//   * a chunk that a client holds is where it was, and has the bytes that were last written to it;
//   * every request, transfer and call is answered exactly once, and then nothing is under way;
//   * a session whose holder lives outlives the daemon;
//   * host memory that is there never comes to more than the node has;
//   * at the end every home can be brought up to date, and nothing is left behind.
//
// The mutants are mistakes that the real code does not make. Each must be noticed.
#ifndef GEMINID_TESTS_SIMULATION_PROTOCOL_SIMULATION_H_
#define GEMINID_TESTS_SIMULATION_PROTOCOL_SIMULATION_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/base/few_descriptors.h"
#include "tests/simulation/simulated_daemon.h"

namespace geminid::simulation {

// Where the clients are, and how much of everything there is.
inline constexpr int kClients = 2;
inline constexpr uint64_t kChunks = 6;  // of a client, in one pool
inline constexpr uint64_t kChunkBytes = shm::kSlotBytes;
inline constexpr uint64_t kArenaBytes = 4 * kChunkBytes;
// What a client may have besides, and for how much of that there is room.
inline constexpr uint64_t kExtraChunks = 2;
inline constexpr uint64_t kHostBytes = (kClients * kChunks + kExtraChunks + 1) * kChunkBytes;

// What a step of the daemon throws that is its last.
struct Death : std::exception {};

enum class Mutant {
  kNone,
  kSkippedFence,         // a client's lease is visible only some time after it relies on it
  kFlipBeforeItsData,    // a copy is said to be done, and then made
  kCreditBeforeItsHole,  // memory counts as free before it is
  kLostResend,           // a successor forgets the tickets that were on their way
  kRepeatedAnswered,     // a successor carries out a request again that was answered before
};

struct ProtocolCounts {
  uint64_t loads = 0;
  uint64_t loads_refused = 0;
  uint64_t changes = 0;
  uint64_t write_backs = 0;
  uint64_t drops = 0;
  uint64_t checks = 0;  // of a chunk's bytes
  uint64_t allocations = 0;
  uint64_t allocations_refused = 0;
  uint64_t deaths = 0;           // of the daemon
  uint64_t deaths_within = 0;    // a request or a call
  uint64_t deaths_starting = 0;  // while it took over
  uint64_t acts_without_daemon = 0;
  uint64_t shortages = 0;  // of descriptors, that somebody met
  uint64_t holder_deaths = 0;
  uint64_t sessions_lost = 0;
  uint64_t evictions = 0;
  bool operator==(const ProtocolCounts&) const = default;
};

class ProtocolSimulation {
 public:
  explicit ProtocolSimulation(uint32_t seed, Mutant mutant = Mutant::kNone);
  ~ProtocolSimulation();

  // One random action.
  void Step();
  // Lets everything end, and looks what is left.
  void Finish();
  // The first thing that did not hold; empty: all did.
  const std::string& violation() const { return violation_; }
  const ProtocolCounts& counts() const { return counts_; }

 private:
  class Client;

  void Violate(const std::string& what);
  uint64_t Pick(uint64_t below) { return random_() % below; }
  bool Chance(int percent) { return Pick(100) < static_cast<uint64_t>(percent); }

  // At each step of the daemon.
  void OnDaemonStep();
  void ActWithoutDaemon();
  void MakeDaemon();
  void Restart();
  // Calls `action(again)` until it returns: each time that the daemon dies in it, its successor is
  // asked again.
  template <typename Action>
  auto Call(Action action);
  void HolderDies();
  void MeetSessions();
  void CheckMemory();
  void CheckLink();
  bool IsIdle();

  std::mt19937_64 random_;
  const Mutant mutant_;
  Node node_;
  DaemonOptions options_;
  int die_in_ = -1;    // steps of the daemon; negative: not now
  bool calm_ = false;  // nobody dies any more
  bool starting_ = false;
  bool holder_lost_ = false;             // it died, and what it had was not put there again
  std::optional<FewDescriptors> few_{};  // there are no more
  std::unique_ptr<SimulatedDaemon> daemon_;
  std::vector<std::unique_ptr<Client>> clients_;
  ProtocolCounts counts_;
  std::string violation_;
};

template <typename Action>
auto ProtocolSimulation::Call(Action action) {
  if (!calm_ && Chance(4)) die_in_ = static_cast<int>(Pick(8));
  for (bool again = false;; again = true) {
    try {
      auto result = action(again);
      die_in_ = -1;
      return result;
    } catch (const Death&) {
      ++counts_.deaths_within;
      Restart();
    }
  }
}

}  // namespace geminid::simulation

#endif  // GEMINID_TESTS_SIMULATION_PROTOCOL_SIMULATION_H_
