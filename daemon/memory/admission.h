// Counts memory that is promised but not made yet: the machine still reports it as available.
#ifndef GEMINID_DAEMON_MEMORY_ADMISSION_H_
#define GEMINID_DAEMON_MEMORY_ADMISSION_H_

#include <cstdint>
#include <mutex>

namespace geminid::memory {

// Admits no more memory at a time than is available. Without it, two calls that look at the machine
// before either has touched a page would both find room. Thread-safe.
class Admission {
 public:
  // Until it is destroyed, `bytes` less those passed to Made() count as taken.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept;
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { End(); }
    explicit operator bool() const { return admission_ != nullptr; }
    // `bytes` more exist now, and the machine no longer calls them available. Any thread.
    void Made(uint64_t bytes);

   private:
    friend class Admission;
    void End();

    Admission* admission_ = nullptr;
    uint64_t bytes_ = 0;  // guarded by the admission's mutex
  };

  // An empty Hold: `available_bytes()`, less promised bytes and `headroom_bytes`, is too little. It
  // is called under the mutex, so that no other call comes in between.
  template <typename Available>
  Hold Admit(uint64_t bytes, uint64_t headroom_bytes, Available available_bytes) {
    const std::lock_guard lock(mutex_);
    const uint64_t taken = promised_bytes_ + headroom_bytes;
    const uint64_t available = available_bytes();
    if (available < taken || available - taken < bytes) return Hold();
    promised_bytes_ += bytes;
    Hold hold;
    hold.admission_ = this;
    hold.bytes_ = bytes;
    return hold;
  }
  uint64_t promised_bytes() const;

 private:
  mutable std::mutex mutex_;
  uint64_t promised_bytes_ = 0;  // guarded by mutex_
};

}  // namespace geminid::memory

#endif  // GEMINID_DAEMON_MEMORY_ADMISSION_H_
