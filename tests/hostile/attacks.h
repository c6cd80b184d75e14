// What a client can try against the daemon and against the other clients.
#ifndef GEMINID_TESTS_HOSTILE_ATTACKS_H_
#define GEMINID_TESTS_HOSTILE_ATTACKS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace geminid::hostile {

// What it got that it must not: counted where the one who watches sees it.
using Spoils = std::atomic<uint64_t>;

struct Attack {
  std::string name;
  std::function<void(const std::string& socket, Spoils* spoils)> run;  // a second or two of it
};

const std::vector<Attack>& Attacks();
// Those of them on links, rings, the queue and the engine's mutex: attacks_shared.cc.
std::vector<Attack> AttacksOnWhatIsShared();

}  // namespace geminid::hostile

#endif  // GEMINID_TESTS_HOSTILE_ATTACKS_H_
