#ifndef GEMINID_TESTS_KERNELS_TEST_ARRAYS_H_
#define GEMINID_TESTS_KERNELS_TEST_ARRAYS_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/runtime/common/bfloat16.h"

namespace geminid::kernels {

// `count` elements, `shift` elements past a cache line, between guards of a known pattern.
template <typename T>
class GuardedArray {
 public:
  GuardedArray(size_t count, size_t shift)
      : count_(count), bytes_(4 * kLine + (shift + count) * sizeof(T), kGuard) {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    offset_ = kLine + (kLine - address % kLine) + shift * sizeof(T);
  }
  // A copy would lose the alignment.
  GuardedArray(GuardedArray&&) = default;
  GuardedArray& operator=(GuardedArray&&) = default;

  T* data() { return reinterpret_cast<T*>(bytes_.data() + offset_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + offset_); }
  T& operator[](size_t i) { return data()[i]; }
  size_t size() const { return count_; }

  bool GuardsIntact() const {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const bool inside = i >= offset_ && i < offset_ + count_ * sizeof(T);
      if (!inside && bytes_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kLine = 64;
  static constexpr unsigned char kGuard = 0xA5;
  size_t count_;
  std::vector<unsigned char> bytes_;
  size_t offset_;
};

// True if the arrays hold the same bits. (== on floats would equate 0 and -0, and no two NaN.)
template <typename T>
bool SameBits(const T* a, const T* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(T)) == 0;
}

// Values of the given typical magnitude with both signs, over about six decades.
inline float RandomValue(std::mt19937& random, double magnitude) {
  std::normal_distribution<double> normal;
  const double sign = normal(random);
  return static_cast<float>(magnitude * sign * std::exp(2.0 * normal(random)));
}

// Any 32 bits: subnormals, infinities and NaN of every payload among them.
inline float AnyFloat(std::mt19937& random) {
  return std::bit_cast<float>(static_cast<uint32_t>(random()));
}

}  // namespace geminid::kernels

#endif  // GEMINID_TESTS_KERNELS_TEST_ARRAYS_H_
