// A limit that all tenants share, such as the number of sessions: no tenant can use it up, so
// another one always gets some.
#ifndef GEMINID_DAEMON_CORE_ACCOUNTS_SHARED_LIMIT_H_
#define GEMINID_DAEMON_CORE_ACCOUNTS_SHARED_LIMIT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace geminid::core {

// A tenant may hold as many as are free, and no more: alone half of all, beside another one a
// third, and so on (dynamic thresholds, Choudhury and Hahne, 1998). So however many tenants take
// all they get, there is always something left for the next one, and nobody has to say beforehand
// how many there will be. Not thread-safe. Cost: logarithmic in the number of tenants.
class SharedLimit {
 public:
  // `name`: as in the configuration and the metrics, such as "sessions".
  SharedLimit(std::string name, uint64_t total) : name_(std::move(name)), total_(total) {}

  // RESOURCE_EXHAUSTED, and nothing taken, says which limit, whose, and what to do.
  absl::Status Take(const std::string& tenant, uint64_t count);
  // Of what was taken while an earlier daemon ran: nobody is asked.
  void TakeAgain(const std::string& tenant, uint64_t count);
  // Of what was taken before.
  void Give(const std::string& tenant, uint64_t count);

  const std::string& name() const { return name_; }
  uint64_t total() const { return total_; }
  uint64_t used() const { return used_; }
  uint64_t UsedBy(const std::string& tenant) const;

 private:
  std::string name_;
  uint64_t total_;
  uint64_t used_ = 0;
  std::map<std::string, uint64_t> by_tenant_;  // no zeros
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ACCOUNTS_SHARED_LIMIT_H_
