// Death at a chosen store into memory that outlives a process: what SIGKILL may do at any
// instruction, seen by who finds the memory afterwards.
//
// The memory's pages are read-only while an operation runs. Each store into them faults and is then
// let through alone, by a single step of the processor; the chosen one is not, and the operation is
// left there and then. What it had on its stack is never destroyed.
#ifndef GEMINID_TESTS_DAEMON_CORE_ENGINE_STORE_DEATH_H_
#define GEMINID_TESTS_DAEMON_CORE_ENGINE_STORE_DEATH_H_

#include <cstddef>
#include <functional>
#include <map>

namespace geminid::core {

// One at a time in a process, and one thread.
class StoreDeath {
 public:
  StoreDeath();
  ~StoreDeath();
  StoreDeath(const StoreDeath&) = delete;
  StoreDeath& operator=(const StoreDeath&) = delete;

  // False: a sanitizer, or a processor without single steps, leaves no way to do it; then nothing
  // ever dies.
  static bool IsPossible();

  static constexpr int kNever = -1;  // of stores

  // Whole pages, until Forget().
  void Watch(std::byte* pages, size_t bytes);
  void Forget(std::byte* pages);

  // Runs `operation`. True: it died at the store after `stores` others, which has not happened.
  // False: it ended before. With kNever it runs at its full speed.
  bool DiesAt(int stores, const std::function<void()>& operation);

 private:
  std::map<std::byte*, size_t> watched_;
};

}  // namespace geminid::core

#endif  // GEMINID_TESTS_DAEMON_CORE_ENGINE_STORE_DEATH_H_
