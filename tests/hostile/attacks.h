// What a client can try against the daemon and against the other clients.
#ifndef GEMINID_TESTS_HOSTILE_ATTACKS_H_
#define GEMINID_TESTS_HOSTILE_ATTACKS_H_

#include <functional>
#include <string>
#include <vector>

namespace geminid::hostile {

struct Attack {
  std::string name;
  std::function<void(const std::string& socket)> run;  // a second or two of it
};

const std::vector<Attack>& Attacks();

}  // namespace geminid::hostile

#endif  // GEMINID_TESTS_HOSTILE_ATTACKS_H_
