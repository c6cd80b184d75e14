#include "training/models/initialization.h"

#include <algorithm>

#include "base/counter_random.h"
#include "base/hash.h"

namespace geminid::trainer {

void Fill(const ParameterSpec& spec, uint64_t seed, uint64_t first_element,
          std::span<float> values) {
  if (spec.init != ParameterSpec::Init::kNormal) {
    std::fill(values.begin(), values.end(), spec.init == ParameterSpec::Init::kOnes ? 1.0F : 0.0F);
    return;
  }
  base::Fnv1a hash;
  hash.AddText(spec.name);
  const uint64_t stream = base::Mix(seed) ^ hash.value();
  for (size_t i = 0; i < values.size();) {
    const uint64_t element = first_element + i;
    const base::NormalPair pair = base::RandomNormals(stream, element / 2);
    for (uint64_t half = element % 2; half < 2 && i < values.size(); ++half, ++i) {
      values[i] = static_cast<float>(spec.deviation * pair.values[half]);
    }
  }
}

}  // namespace geminid::trainer
