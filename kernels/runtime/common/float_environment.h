#ifndef GEMINID_KERNELS_RUNTIME_COMMON_FLOAT_ENVIRONMENT_H_
#define GEMINID_KERNELS_RUNTIME_COMMON_FLOAT_ENVIRONMENT_H_

#include <cfenv>

namespace geminid::kernels {

// While alive, the calling thread computes in the default IEEE-754 environment: round to nearest,
// with subnormals. Frameworks and -ffast-math libraries switch threads to flush-to-zero; there the
// same step would otherwise give other bits. Costs about 0.1 us.
//
// The arithmetic must sit behind a call that the compiler cannot see through (the kernels'
// dynamic dispatch is one), or it may be moved out of the scope.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~ScopedFloatEnvironment() { std::fesetenv(&saved_); }
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_COMMON_FLOAT_ENVIRONMENT_H_
