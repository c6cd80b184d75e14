#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/optimizers/compact_adamw/compact_adamw.h"
#include "kernels/optimizers/compact_adamw/compact_adamw_cuda.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

using kernels::BFloat16;
using kernels::BFloat16Moments;
using kernels::CompactState;
using kernels::EightBitMoments;
using kernels::kQuantiseBlock;
using kernels::MasterWeights;
using kernels::SplitWeights;

constexpr size_t kTimedCount = size_t{64} << 20;
constexpr uint64_t kFirstElement = (uint64_t{1} << 32) - kQuantiseBlock;  // crosses 32 bits

struct Size {
  size_t count;
  size_t shift;  // elements before a word
};
// One, a short block, one block, groups of blocks whole and broken, off words.
constexpr Size kSizes[] = {{1, 0},    {200, 1}, {kQuantiseBlock, 0}, {9 * kQuantiseBlock, 0},
                           {5003, 0}, {5003, 1}};

template <typename T>
std::vector<T> RandomIntegers(size_t count, uint64_t seed) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(static_cast<int>(RandomUnit(seed * count + i) * 127.0F));
  }
  return values;
}

std::vector<float> RandomScales(size_t count, uint64_t seed) {
  std::vector<float> scales = RandomArray<float>(kernels::QuantiseScaleCount(count), seed, 0.01F);
  for (float& scale : scales) scale = 0.02F + scale;
  return scales;
}

// A state on either side, in place: read and written.
template <class T>
struct State {
  T host;
  T device;
};

State<SplitWeights> WeightsOf(Trial& trial, const Size& s, const SplitWeights* /* type */) {
  const auto weight = trial.Out("weight", RandomArray<BFloat16>(s.count, 1), s.shift, 0, 2);
  const auto rest = trial.Out("remainder", RandomIntegers<int16_t>(s.count, 2), s.shift, 0, 2);
  return {{weight.host, rest.host}, {weight.device, rest.device}};
}
State<MasterWeights> WeightsOf(Trial& trial, const Size& s, const MasterWeights* /* type */) {
  const auto weight = trial.Out("weight", RandomArray<float>(s.count, 3), s.shift, 0, 2);
  return {{weight.host}, {weight.device}};
}
State<EightBitMoments> MomentsOf(Trial& trial, const Size& s, const EightBitMoments* /* type */) {
  const auto m = trial.Out("exp_avg", RandomIntegers<uint8_t>(s.count, 4), s.shift, 0, 2);
  const auto m_scale = trial.Out("exp_avg_scale", RandomScales(s.count, 5), 0, 0, 2);
  const auto v = trial.Out("exp_avg_sq_root", RandomIntegers<uint8_t>(s.count, 6), s.shift, 0, 2);
  const auto v_scale = trial.Out("exp_avg_sq_root_scale", RandomScales(s.count, 7), 0, 0, 2);
  return {{m.host, m_scale.host, v.host, v_scale.host},
          {m.device, m_scale.device, v.device, v_scale.device}};
}
State<BFloat16Moments> MomentsOf(Trial& trial, const Size& s, const BFloat16Moments* /* type */) {
  std::vector<BFloat16> squares = RandomArray<BFloat16>(s.count, 8, 1e-3F);
  for (BFloat16& v : squares) v.bits &= 0x7FFF;  // a second moment is not negative
  const auto m = trial.Out("exp_avg", RandomArray<BFloat16>(s.count, 9, 0.01F), s.shift, 0, 2);
  const auto v = trial.Out("exp_avg_sq", std::move(squares), s.shift, 0, 2);
  return {{m.host, v.host}, {m.device, v.device}};
}

template <class Weights, class Moments, typename Gradient>
void CheckCompact(Trial& trial, const Size& size) {
  const kernels::AdamWOptions options = {
      .learning_rate = 3e-3, .beta2 = 0.95, .weight_decay = 0.1, .step = 7, .grad_scale = 1.0 / 7};
  const auto gradient = trial.In(RandomArray<Gradient>(size.count, 10), size.shift);
  const auto weights = WeightsOf(trial, size, static_cast<const Weights*>(nullptr));
  const auto moments = MomentsOf(trial, size, static_cast<const Moments*>(nullptr));
  const CompactState<Weights, Moments> on_host = {weights.host, moments.host};
  const CompactState<Weights, Moments> on_device = {weights.device, moments.device};
  trial.Run(
      [&] {
        return kernels::AdamWCompact(options, kFirstElement, on_host, gradient.host, size.count,
                                     on_host);
      },
      [&] {
        return kernels::AdamWCompactCuda(options, kFirstElement, on_device, gradient.device,
                                         size.count, on_device, nullptr);
      });
}

KernelCase Case(const char* name, void (*check)(Trial&, const Size&)) {
  KernelCase one;
  one.name = name;
  for (const Size& size : kSizes) {
    one.compared.emplace_back([check, size](Trial& trial) { check(trial, size); });
  }
  one.timed = [check](Trial& trial) { check(trial, Size{kTimedCount, 0}); };
  return one;
}

}  // namespace

std::vector<KernelCase> CompactCases() {
  return {
      Case("adamw, 8 bits, split, bf16", CheckCompact<SplitWeights, EightBitMoments, BFloat16>),
      Case("adamw, 8 bits, split, fp32", CheckCompact<SplitWeights, EightBitMoments, float>),
      Case("adamw, 8 bits, fp32, fp32", CheckCompact<MasterWeights, EightBitMoments, float>),
      Case("adamw, bf16, split, bf16", CheckCompact<SplitWeights, BFloat16Moments, BFloat16>),
      Case("adamw, bf16, split, fp32", CheckCompact<SplitWeights, BFloat16Moments, float>),
      Case("adamw, bf16, fp32, fp32", CheckCompact<MasterWeights, BFloat16Moments, float>),
  };
}

}  // namespace geminid::kernel_check
