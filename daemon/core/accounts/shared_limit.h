// A limit that all tenants share, such as the number of sessions: no tenant can use it up, so
// another one always gets some.
#ifndef GEMINID_DAEMON_CORE_ACCOUNTS_SHARED_LIMIT_H_
#define GEMINID_DAEMON_CORE_ACCOUNTS_SHARED_LIMIT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace geminid::core {

// A tenant may hold no more than are still free. A single tenant gets half of all, each of two
// tenants a third, and so on (dynamic thresholds, Choudhury and Hahne, 1998). So there is always
// something left for the next tenant, and nobody has to configure how many tenants there will be.
// Not thread-safe. Cost: logarithmic in the number of tenants.
class SharedLimit {
 public:
  // `name`: as in the configuration and the metrics, such as "sessions".
  SharedLimit(std::string name, uint64_t total) : name_(std::move(name)), total_(total) {}

  // RESOURCE_EXHAUSTED: nothing is taken. The message names limit and tenant, and says what to do.
  absl::Status Take(const std::string& tenant, uint64_t count);
  // Counts what the tenant took while an earlier daemon ran. Cannot fail.
  void TakeAgain(const std::string& tenant, uint64_t count);
  // Gives back what the tenant took before.
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
