#include "tools/kernel-check/timed_products.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace geminid::kernel_check {
namespace {

using kernels::MatmulShape;
using kernels::Transpose;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

const char* TypesName(ProductTypes types) {
  switch (types) {
    case ProductTypes::kBf16:
      return "bf16";
    case ProductTypes::kBf16ToFp32:
      return "bf16 to fp32";
    case ProductTypes::kFp32:
      return "fp32";
  }
  return "";
}

// "4096 x 3072 x 768": rows, columns, length of the sums.
std::string ShapeName(const MatmulShape& shape) {
  return std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " +
         std::to_string(shape.k);
}

template <typename... Values>
std::string Format(const char* format, Values... values) {
  constexpr size_t kMost = 512;
  std::array<char, kMost> text = {};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

}  // namespace

double TimedProduct::operations() const {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

// Sizes that suit cuBLASLt; then the smaller ones of training GPT-2: a layer's widening with its
// bias, that layer's gradient of the weights, and logits.
std::vector<TimedProduct> TimedProducts(size_t most_edge) {
  constexpr Transpose kYes = Transpose::kYes;
  std::vector<TimedProduct> products = {
      {.id = "P1", .shape = {.m = 4096, .n = 4096, .k = 4096, .transpose_b = kYes}},
      {.id = "P2", .shape = {.m = 8192, .n = 3072, .k = 768, .bias = true}},
      {.id = "P3", .shape = {.m = 768, .n = 3072, .k = 8192, .transpose_a = kYes}},
      {.id = "P4",
       .shape = {.m = 1024, .n = 50304, .k = 768, .transpose_b = kYes},
       .types = ProductTypes::kBf16ToFp32},
      {.id = "P5", .shape = {.m = 2048, .n = 2048, .k = 2048}, .types = ProductTypes::kFp32},
  };
  for (TimedProduct& product : products) {
    MatmulShape& shape = product.shape;
    if (most_edge > 0) {
      shape.m = std::min(shape.m, most_edge);
      shape.n = std::min(shape.n, std::max<size_t>(most_edge * 3 / 4, 1));
      shape.k = std::min(shape.k, std::max<size_t>(most_edge / 2, 1));
    }
    product.name = std::string(product.id) + " product by cuBLASLt, " + TypesName(product.types) + ", " +
                   ShapeName(shape);
  }
  return products;
}

void JudgeRounds(const std::vector<double>& library, const std::vector<double>& bare_loop,
                 bool judged, ProductTiming* timing) {
  timing->judged = judged;
  const auto has_rate = [](double rate) { return std::isfinite(rate) && rate > 0; };
  if (library.empty() || library.size() != bare_loop.size() ||
      !std::all_of(library.begin(), library.end(), has_rate) ||
      !std::all_of(bare_loop.begin(), bare_loop.end(), has_rate)) {
    timing->detail = "no rate";
    return;
  }
  std::vector<double> ratios;
  for (size_t i = 0; i < library.size(); ++i) ratios.push_back(library[i] / bare_loop[i]);
  timing->library = Median(library);
  timing->bare_loop = Median(bare_loop);
  timing->of_bare_loop = Median(ratios);
  timing->passed = !judged || timing->of_bare_loop >= kLeastOfBareLoop;
  if (!timing->passed) {
    timing->detail = Format("%.3f of a bare loop, less than %.2f", timing->of_bare_loop,
                            kLeastOfBareLoop);
  }
}

std::string ProductLine(const ProductTiming& timing) {
  constexpr double kTera = 1e12;
  std::string line =
      Format("%-52s %-4s", timing.product.name.c_str(), timing.passed ? "pass" : "FAIL");
  if (timing.of_bare_loop > 0) {
    line += Format("  %8.2f TFLOP/s  %5.2f of a bare loop%s", timing.library / kTera,
                   timing.of_bare_loop, timing.judged ? "" : " (not judged)");
  }
  if (timing.own_kernel > 0) {
    line += Format("  %6.1f of our kernel", timing.library / timing.own_kernel);
  }
  return timing.detail.empty() ? line : line + "  " + timing.detail;
}

std::string ProductJson(const ProductTiming& timing) {
  const TimedProduct& product = timing.product;
  return "{\"id\": " + JsonString(product.id) + ", \"name\": " + JsonString(product.name) +
         Format(", \"library_flops\": %.6g, \"bare_loop_flops\": %.6g, \"own_kernel_flops\": %.6g",
                timing.library, timing.bare_loop, timing.own_kernel) +
         Format(", \"of_bare_loop\": %.4g, \"judged\": %s, \"passed\": %s", timing.of_bare_loop,
                timing.judged ? "true" : "false", timing.passed ? "true" : "false") +
         ", \"detail\": " + JsonString(timing.detail) + "}";
}

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

}  // namespace geminid::kernel_check
