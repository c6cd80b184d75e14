// Guards callbacks that may run after the object that they use has ended, or may never run.
#ifndef GEMINID_CLIENT_ZERO_BASICS_CALLBACK_GUARD_H_
#define GEMINID_CLIENT_ZERO_BASICS_CALLBACK_GUARD_H_

#include <condition_variable>
#include <mutex>

namespace geminid::zero {

// Thread-safe. Callbacks share one guard by shared_ptr. A callback may run within another one.
template <typename T>
class CallbackGuard {
 public:
  explicit CallbackGuard(T* about) : about_(about) {}

  // Calls `act` with the guarded object, unless End was called.
  template <typename Act>
  void Run(const Act& act) {
    T* about = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (about_ == nullptr) return;
      about = about_;
      ++running_;
    }
    act(about);
    const std::lock_guard lock(mutex_);
    if (--running_ == 0 && about_ == nullptr) idle_.notify_all();
  }

  // Waits for running callbacks and lets no other begin. Not to be called within a callback.
  void End() {
    std::unique_lock lock(mutex_);
    about_ = nullptr;
    idle_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable idle_;
  T* about_;
  int running_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_BASICS_CALLBACK_GUARD_H_
