#include "tools/trainer/initialization.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "base/counter_random.h"

namespace geminid::trainer {
namespace {

// FNV-1a.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char character : text) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3u;
  }
  return hash;
}

// Elements 2n and 2n+1 are the two numbers that Box and Muller make from one pair of uniforms.
struct NormalPair {
  double values[2];
};
NormalPair Normal(uint64_t stream, uint64_t pair) {
  const double radius =
      std::sqrt(-2.0 * std::log(base::UnitInterval(base::RandomBits(stream, 2 * pair))));
  const double angle =
      2.0 * std::numbers::pi * base::UnitInterval(base::RandomBits(stream, 2 * pair + 1));
  return {{radius * std::cos(angle), radius * std::sin(angle)}};
}

}  // namespace

void Fill(const ParameterSpec& spec, uint64_t seed, uint64_t first_element,
          std::span<float> values) {
  if (spec.init != ParameterSpec::Init::kNormal) {
    std::fill(values.begin(), values.end(), spec.init == ParameterSpec::Init::kOnes ? 1.0F : 0.0F);
    return;
  }
  const uint64_t stream = base::Mix(seed) ^ Hash(spec.name);
  for (size_t i = 0; i < values.size();) {
    const uint64_t element = first_element + i;
    const NormalPair pair = Normal(stream, element / 2);
    for (uint64_t half = element % 2; half < 2 && i < values.size(); ++half, ++i) {
      values[i] = static_cast<float>(spec.deviation * pair.values[half]);
    }
  }
}

}  // namespace geminid::trainer
