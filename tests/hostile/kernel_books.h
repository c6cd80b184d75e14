// What the kernel says of the shared memory that a group of processes holds.
#ifndef GEMINID_TESTS_HOSTILE_KERNEL_BOOKS_H_
#define GEMINID_TESTS_HOSTILE_KERNEL_BOOKS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace geminid::hostile {

// A memory cgroup of version 1 or 2 that this process has entered, and with it all that it starts
// from now on. Needs root, and a machine that has one of the two.
class KernelBooks {
 public:
  // Null where cgroups cannot be made.
  static std::unique_ptr<KernelBooks> Open();
  ~KernelBooks();  // leaves it; removes it once the others have ended

  std::optional<uint64_t> SharedBytes() const;

 private:
  KernelBooks(std::string folder, std::string before, std::string key)
      : folder_(std::move(folder)), before_(std::move(before)), key_(std::move(key)) {}

  const std::string folder_;
  const std::string before_;  // where this process was
  const std::string key_;     // in memory.stat
};

}  // namespace geminid::hostile

#endif  // GEMINID_TESTS_HOSTILE_KERNEL_BOOKS_H_
