// The arrays of one optimizer step, in separate memory of host and device.
#ifndef GEMINID_TOOLS_KERNEL_CHECK_ARRAYS_H_
#define GEMINID_TOOLS_KERNEL_CHECK_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/optimizers/step/parameter_arrays.h"
#include "tools/kernel-check/device.h"

namespace geminid::kernel_check {

const char* FormName(kernels::WeightForm form);
const char* GradientTypeName(kernels::GradientType type);
size_t GradientBytes(kernels::GradientType type);

// Bytes of one state of a parameter.
size_t StateBytes(kernels::StateForm form);

// `count` parameters: weights, states and gradient lie one after the other in one block of
// bytes, which is copied and compared as a whole. `shift_bytes` moves every array off a 16-byte
// word.
class Layout {
 public:
  Layout(kernels::WeightForm form, kernels::GradientType type, kernels::StateForm state_form,
         int states, size_t count, size_t shift_bytes);

  size_t bytes() const { return bytes_; }
  // The bytes of weights and states, which a step writes.
  size_t written_bytes() const { return gradient_at_; }

  kernels::ParameterArrays Arrays(std::byte* base) const;
  kernels::GradientArray Gradient(std::byte* base) const;

  // Reproducible values of the magnitudes in training; a few zeros, subnormals and huge ones.
  std::vector<std::byte> RandomBytes(uint64_t seed) const;

  // The array and element that the byte belongs to, for messages.
  std::string Describe(size_t byte) const;

 private:
  struct Part {
    const char* name;
    size_t at;
    size_t element_bytes;
  };
  size_t Add(const char* name, size_t element_bytes);

  kernels::WeightForm form_;
  kernels::GradientType type_;
  kernels::StateForm state_form_;
  int states_;
  size_t count_;
  size_t shift_bytes_;
  std::vector<Part> parts_;
  size_t bytes_ = 0;
  size_t gradient_at_ = 0;
};

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_ARRAYS_H_
