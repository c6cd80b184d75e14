#include "tools/kernel-check/arrays.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/pages.h"
#include "kernels/numeric/split_master/split_master.h"

namespace geminid::kernel_check {

using kernels::BFloat16;
using kernels::GradientArray;
using kernels::GradientType;
using kernels::ParameterArrays;
using kernels::StateForm;
using kernels::WeightForm;

namespace {

// The index within the tensor: the lower half of the compared indices wraps around.
constexpr uint64_t kFirstElement = (uint64_t{3} << 32) - 1003;
constexpr size_t kArrayAlignment = 256;  // more than a word, so that only the shift disturbs it

float RandomValue(std::mt19937_64& random, float scale) {
  const uint64_t bits = random();
  switch (bits % 1021) {  // a prime, so that the rare values have no common period with anything
    case 0:
      return 0.0F;
    case 1:
      return 1e-41F;  // subnormal
    case 2:
      return 1e15F;  // whose square is still a float
    default: {
      const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
      return static_cast<float>((2 * unit - 1) * scale);
    }
  }
}

}  // namespace

const char* FormName(WeightForm form) { return form == WeightForm::kFloat ? "fp32" : "split"; }

const char* GradientTypeName(GradientType type) {
  return type == GradientType::kFloat ? "fp32" : "bf16";
}

size_t GradientBytes(GradientType type) { return type == GradientType::kFloat ? 4 : 2; }

size_t StateBytes(StateForm form) {
  return form == StateForm::kFloat ? sizeof(float) : sizeof(BFloat16);
}

Layout::Layout(WeightForm form, GradientType type, StateForm state_form, int states, size_t count,
               size_t shift_bytes)
    : form_(form),
      type_(type),
      state_form_(state_form),
      states_(states),
      count_(count),
      shift_bytes_(shift_bytes) {
  if (form == WeightForm::kSplit) {
    Add("bfloat16", sizeof(BFloat16));
    Add("remainder", sizeof(int16_t));
  } else {
    Add("master", sizeof(float));
  }
  for (int s = 0; s < states; ++s) Add(s == 0 ? "state 0" : "state 1", StateBytes(state_form));
  gradient_at_ = bytes_;
  Add("gradient", GradientBytes(type));
}

size_t Layout::Add(const char* name, size_t element_bytes) {
  const size_t at = bytes_ + shift_bytes_;
  parts_.push_back({name, at, element_bytes});
  const size_t end = at + count_ * element_bytes;
  bytes_ = base::RoundUp(end, kArrayAlignment);
  return at;
}

ParameterArrays Layout::Arrays(std::byte* base) const {
  ParameterArrays arrays;
  arrays.form = form_;
  arrays.state_form = state_form_;
  arrays.rounding = {.seed = 77, .first_element = kFirstElement};
  int state = 0;
  for (const Part& part : parts_) {
    std::byte* const at = base + part.at;
    const std::string name = part.name;
    if (name == "master") arrays.master = reinterpret_cast<float*>(at);
    if (name == "bfloat16") arrays.bfloat16 = reinterpret_cast<BFloat16*>(at);
    if (name == "remainder") arrays.remainder = reinterpret_cast<int16_t*>(at);
    if (!name.starts_with("state")) continue;
    if (state_form_ == StateForm::kFloat) arrays.state[state++] = reinterpret_cast<float*>(at);
    if (state_form_ == StateForm::kBFloat16) {
      arrays.small_state[state++] = reinterpret_cast<BFloat16*>(at);
    }
  }
  return arrays;
}

GradientArray Layout::Gradient(std::byte* base) const {
  GradientArray gradient;
  gradient.type = type_;
  gradient.data = base + parts_.back().at;
  return gradient;
}

std::vector<std::byte> Layout::RandomBytes(uint64_t seed) const {
  std::vector<std::byte> bytes(bytes_);
  std::mt19937_64 random(seed);
  const ParameterArrays arrays = Arrays(bytes.data());
  for (size_t i = 0; i < count_; ++i) {
    const float weight = RandomValue(random, 0.1F);
    if (form_ == WeightForm::kSplit) {
      const auto split = kernels::SplitMasterBits(std::bit_cast<uint32_t>(weight));
      arrays.bfloat16[i] = split.weight;
      arrays.remainder[i] = split.remainder;
    } else {
      arrays.master[i] = weight;
    }
    for (int s = 0; s < states_; ++s) {
      const float state = std::fabs(RandomValue(random, 1e-3F));
      if (state_form_ == StateForm::kFloat) arrays.state[s][i] = state;
      if (state_form_ == StateForm::kBFloat16) {
        arrays.small_state[s][i] = BFloat16::FromFloat(state);
      }
    }
    const float gradient = RandomValue(random, 1e-2F);
    std::byte* const at = bytes.data() + parts_.back().at + i * GradientBytes(type_);
    const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
    if (type_ == GradientType::kFloat) put(gradient);
    if (type_ == GradientType::kBFloat16) put(BFloat16::FromFloat(gradient));
  }
  return bytes;
}

std::string Layout::Describe(size_t byte) const {
  const Part* part = &parts_.front();
  for (const Part& candidate : parts_) {
    if (candidate.at <= byte) part = &candidate;
  }
  return std::string(part->name) + "[" + std::to_string((byte - part->at) / part->element_bytes) +
         "]";
}

}  // namespace geminid::kernel_check
