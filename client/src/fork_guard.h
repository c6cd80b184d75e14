// Tells whether this process is a forked child of the process that created the guard.
#ifndef GEMINID_CLIENT_SRC_FORK_GUARD_H_
#define GEMINID_CLIENT_SRC_FORK_GUARD_H_

#include <atomic>

namespace geminid {

// A child has neither the session's mappings nor its threads, but it inherits descriptors. The
// descriptor given to the guard is closed in the child at once, so that the daemon notices when the
// parent ends.
class ForkGuard {
 public:
  explicit ForkGuard(int close_in_child);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool in_child() const { return in_child_.load(std::memory_order_relaxed); }

 private:
  friend class ForkGuardList;
  const int close_in_child_;
  std::atomic<bool> in_child_ = false;
  ForkGuard* next_ = nullptr;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_FORK_GUARD_H_
