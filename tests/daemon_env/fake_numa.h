// A simulated machine: nodes with the memory that a test gives them.
#ifndef GEMINID_TESTS_DAEMON_ENV_FAKE_NUMA_H_
#define GEMINID_TESTS_DAEMON_ENV_FAKE_NUMA_H_

#include <mutex>
#include <utility>
#include <vector>

#include "daemon/os/numa.h"

namespace geminid::testing {

// Binds nothing and records the requests to bind. Thread-safe.
class FakeNuma : public os::Numa {
 public:
  struct Binding {
    uint64_t bytes = 0;
    int node = 0;
    bool strict = false;
  };

  explicit FakeNuma(std::vector<os::NodeMemory> nodes) : nodes_(std::move(nodes)) {}

  std::vector<os::NodeMemory> Nodes() const override { return nodes_; }
  absl::Status Bind(void*, uint64_t bytes, int node, bool strict) const override {
    const std::lock_guard lock(mutex_);
    bindings_.push_back({bytes, node, strict});
    return absl::OkStatus();
  }
  std::vector<Binding> bindings() const {
    const std::lock_guard lock(mutex_);
    return bindings_;
  }

 private:
  const std::vector<os::NodeMemory> nodes_;
  mutable std::mutex mutex_;
  mutable std::vector<Binding> bindings_;  // guarded by mutex_
};

}  // namespace geminid::testing

#endif  // GEMINID_TESTS_DAEMON_ENV_FAKE_NUMA_H_
