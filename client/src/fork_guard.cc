#include "client/src/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>

namespace geminid {

// All guards of the process. Locked during fork, so that the child finds the list consistent.
class ForkGuardList {
 public:
  static ForkGuardList& Get() {
    static ForkGuardList* const list = new ForkGuardList;  // never destroyed: for late forks
    return *list;
  }

  void Add(ForkGuard* guard) {
    const std::lock_guard lock(mutex_);
    guard->next_ = first_;
    first_ = guard;
  }

  void Remove(ForkGuard* guard) {
    const std::lock_guard lock(mutex_);
    for (ForkGuard** link = &first_; *link != nullptr; link = &(*link)->next_) {
      if (*link != guard) continue;
      *link = guard->next_;
      return;
    }
  }

 private:
  ForkGuardList() {
    pthread_atfork([] { Get().mutex_.lock(); }, [] { Get().mutex_.unlock(); },
                   [] { Get().AfterForkInChild(); });
  }

  void AfterForkInChild() {
    for (ForkGuard* guard = first_; guard != nullptr; guard = guard->next_) {
      if (guard->in_child_.exchange(true)) continue;
      if (guard->close_in_child_ >= 0) close(guard->close_in_child_);
    }
    mutex_.unlock();
  }

  std::mutex mutex_;
  ForkGuard* first_ = nullptr;
};

ForkGuard::ForkGuard(int close_in_child) : close_in_child_(close_in_child) {
  ForkGuardList::Get().Add(this);
}

ForkGuard::~ForkGuard() { ForkGuardList::Get().Remove(this); }

}  // namespace geminid
