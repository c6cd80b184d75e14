// Products that are timed in three ways: by cuBLASLt as training asks it (MatmulLibrary), by a bare
// loop around the library's call, and by the kernel of our own. Which they are, and what the rates
// say; pure. Who measures is product_timing.h.
#ifndef GEMINID_TOOLS_KERNEL_CHECK_TIMED_PRODUCTS_H_
#define GEMINID_TOOLS_KERNEL_CHECK_TIMED_PRODUCTS_H_

#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/model/matmul/matmul.h"

namespace geminid::kernel_check {

enum class ProductTypes { kBf16, kBf16ToFp32, kFp32 };

struct TimedProduct {
  const char* id = "";  // of its row in docs/gpu-verification.md
  std::string name = {};
  kernels::MatmulShape shape = {};
  ProductTypes types = ProductTypes::kBf16;

  double operations() const;
};

// Those of the page; if `most_edge` is not 0, cut to that many rows, 3/4 as many columns, and sums
// of half that length: still no squares.
std::vector<TimedProduct> TimedProducts(size_t most_edge);

// The least that the library as training asks it must reach of the bare loop.
inline constexpr double kLeastOfBareLoop = 0.95;

struct ProductTiming {
  TimedProduct product;
  double library = 0;  // operations per second, as the two below
  double bare_loop = 0;
  double own_kernel = 0;
  double of_bare_loop = 0;
  bool judged = false;  // its rates say something: the shape was not cut
  bool passed = false;
  std::string detail;  // why not
};

// The rates of the rounds, in which the two took turns, and their verdict. No round, or one without
// a rate, fails.
void JudgeRounds(const std::vector<double>& library, const std::vector<double>& bare_loop,
                 bool judged, ProductTiming* timing);

// Empty if no value is farther from the other's than `tolerance` times the largest of `own`; else
// which is.
template <typename T>
std::string ProductDifference(const std::vector<T>& library, const std::vector<T>& own,
                              double tolerance) {
  const auto wide = [](T value) -> double {
    if constexpr (std::is_arithmetic_v<T>) return value;
    if constexpr (!std::is_arithmetic_v<T>) return value.ToFloat();
  };
  double largest = 0;
  for (const T& value : own) largest = std::fmax(largest, std::fabs(wide(value)));
  for (size_t i = 0; i < own.size(); ++i) {
    const double difference = std::fabs(wide(library[i]) - wide(own[i]));
    if (difference <= tolerance * largest) continue;  // no for a NaN
    return "c[" + std::to_string(i) + "] is " + std::to_string(wide(library[i])) + ", and " +
           std::to_string(wide(own[i])) + " by our kernel";
  }
  return "";
}

std::string ProductLine(const ProductTiming& timing);
// An object, without a line's end.
std::string ProductJson(const ProductTiming& timing);

// `text` in quotes, without control characters.
std::string JsonString(const std::string& text);

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_TIMED_PRODUCTS_H_
