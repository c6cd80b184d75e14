// A shortage of descriptors that a test begins and ends.
#ifndef GEMINID_TESTS_BASE_FEW_DESCRIPTORS_H_
#define GEMINID_TESTS_BASE_FEW_DESCRIPTORS_H_

#include <fcntl.h>
#include <sys/resource.h>

#include <cstdlib>

namespace geminid {

// While it lives, this process can open only `more` further descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    if (::getrlimit(RLIMIT_NOFILE, &old_) != 0) std::abort();
    int number = 0;
    for (int free = 0;; ++number) {
      if (::fcntl(number, F_GETFD) == -1 && free++ == more) break;
    }
    const rlimit few = {static_cast<rlim_t>(number), old_.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) std::abort();
  }
  ~FewDescriptors() {
    if (::setrlimit(RLIMIT_NOFILE, &old_) != 0) std::abort();
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit old_ = {};
};

}  // namespace geminid

#endif  // GEMINID_TESTS_BASE_FEW_DESCRIPTORS_H_
