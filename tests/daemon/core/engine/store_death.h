// Death at a chosen store into memory that outlives a process. SIGKILL may have the same effect at
// any instruction, and the next process finds the memory.
//
// The memory's pages are read-only while an operation runs. Each store into them faults, and a
// single step of the processor then lets it through alone. At the chosen store the operation is
// left instead. The objects on its stack are never destroyed.
#ifndef GEMINID_TESTS_DAEMON_CORE_ENGINE_STORE_DEATH_H_
#define GEMINID_TESTS_DAEMON_CORE_ENGINE_STORE_DEATH_H_

#include <cstddef>
#include <functional>
#include <map>

namespace geminid::core {

// One object at a time in a process, and one thread.
class StoreDeath {
 public:
  StoreDeath();
  ~StoreDeath();
  StoreDeath(const StoreDeath&) = delete;
  StoreDeath& operator=(const StoreDeath&) = delete;

  // False under a sanitizer or on a processor without single steps. The operation then never dies.
  static bool IsPossible();

  static constexpr int kNever = -1;  // of stores

  // Watches whole pages, until Forget().
  void Watch(std::byte* pages, size_t bytes);
  void Forget(std::byte* pages);

  // Runs `operation`. True: it died at the store after `stores` others, and that store did not
  // happen. False: it ended before. With kNever it runs at full speed.
  bool DiesAt(int stores, const std::function<void()>& operation);

 private:
  std::map<std::byte*, size_t> watched_;
};

}  // namespace geminid::core

#endif  // GEMINID_TESTS_DAEMON_CORE_ENGINE_STORE_DEATH_H_
