// The products that are timed in three ways: by cuBLASLt as training calls it (MatmulLibrary), by a
// bare loop around the library's call, and by our own kernel. The list, and the verdict on the
// rates; pure. product_timing.h measures.
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

// The products of the page; if `most_edge` is not 0, cut to that many rows, 3/4 as many columns,
// and sums of half that length, so that they are still no squares.
std::vector<TimedProduct> TimedProducts(size_t most_edge);

// The least share of the bare loop's rate that the library must reach as training calls it.
inline constexpr double kLeastOfBareLoop = 0.95;

struct ProductTiming {
  TimedProduct product;
  double library = 0;  // operations per second, as are the next two
  double bare_loop = 0;
  double own_kernel = 0;
  double of_bare_loop = 0;
  bool judged = false;  // the rates have a verdict: the shape was not cut
  bool passed = false;
  std::string detail;  // why it did not pass
};

// Fills in the median rates of the rounds, in which the two took turns, and the verdict. No round,
// or a round without a rate, fails.
void JudgeRounds(const std::vector<double>& library, const std::vector<double>& bare_loop,
                 bool judged, ProductTiming* timing);

// Empty if every value differs by at most `tolerance` times the largest of `own`; else names the
// first that differs by more.
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
// A JSON object without a newline.
std::string ProductJson(const ProductTiming& timing);

// `text` in quotes, without control characters.
std::string JsonString(const std::string& text);

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_TIMED_PRODUCTS_H_
