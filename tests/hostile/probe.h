// A client that only asks for small tickets, and how long each takes to come.
#ifndef GEMINID_TESTS_HOSTILE_PROBE_H_
#define GEMINID_TESTS_HOSTILE_PROBE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/shm/ring.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::hostile {

class Probe {
 public:
  // Null where it cannot attach.
  static std::unique_ptr<Probe> Attach(const std::string& socket);

  // Tickets for 4 KiB, one after the other, for so long: microseconds from the request to each. A
  // ticket that takes longer is waited for.
  std::vector<double> Ask(std::chrono::steady_clock::duration time);

 private:
  using Requests = shm::RingWriter<shm::Request, shm::kRingEntries>;
  using Responses = shm::RingReader<shm::Response, shm::kRingEntries>;

  explicit Probe(std::unique_ptr<testing::RawClient> client);
  shm::Response Do(shm::Request request);

  const std::unique_ptr<testing::RawClient> client_;
  Requests requests_;
  Responses responses_;
  uint64_t last_ = 0;
};

// The value below which so many hundredths of them are; 0 of none.
double Percentile(std::vector<double> values, double hundredths);

}  // namespace geminid::hostile

#endif  // GEMINID_TESTS_HOSTILE_PROBE_H_
