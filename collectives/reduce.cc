#include "collectives/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/runtime/simd/highway_limit.h"  // IWYU pragma: keep

// Highway compiles everything in HWY_NAMESPACE once per instruction set and selects one at run
// time. No operation below depends on the width of a vector, so all of them give the same bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/reduce.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// after foreach_target.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::collectives {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// How a format is loaded into the vectors for computing, and stored from them.
template <class Element>
struct Plain {
  using Storage = Element;
  using D = hn::ScalableTag<Element>;
  HWY_INLINE static hn::Vec<D> Load(const Storage* from) { return hn::LoadU(D(), from); }
  HWY_INLINE static void Store(hn::Vec<D> value, Storage* to) { hn::StoreU(value, D(), to); }
};

// 16-bit formats are computed in fp32.
struct Wide {
  using D = hn::ScalableTag<float>;
  using Bits = hn::RebindToUnsigned<D>;
  using Half = hn::Rebind<uint16_t, D>;
  using Storage = uint16_t;
  HWY_INLINE static void StoreLow16(hn::Vec<Bits> bits, Storage* to) {
    const hn::RebindToSigned<D> di;
    hn::StoreU(hn::DemoteTo(Half(), hn::BitCast(di, bits)), Half(), to);
  }
};

struct BFloat16Format : Wide {
  HWY_INLINE static hn::Vec<D> Load(const Storage* from) {
    const auto bits = hn::PromoteTo(Bits(), hn::LoadU(Half(), from));
    return hn::BitCast(D(), hn::ShiftLeft<16>(bits));
  }
  // Rounds to nearest, ties to even; a NaN becomes a quiet NaN.
  HWY_INLINE static void Store(hn::Vec<D> value, Storage* to) {
    const Bits du;
    const auto bits = hn::BitCast(du, value);
    const auto high = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(high, hn::Set(du, 1));
    const auto bias = hn::Add(hn::Set(du, 0x7fff), odd);
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, bias));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(value));
    StoreLow16(hn::IfThenElse(is_nan, hn::Or(high, hn::Set(du, 0x40)), rounded), to);
  }
};

struct Float16Format : Wide {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSSE3 || \
    HWY_TARGET == HWY_SSE4
  // With integers: Highway's version for these sets turns infinities and NaNs into numbers.
  HWY_INLINE static hn::Vec<D> Load(const Storage* from) {
    const Bits du;
    const auto bits = hn::PromoteTo(du, hn::LoadU(Half(), from));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fff));
    const auto shifted = hn::ShiftLeft<13>(magnitude);
    const auto normal = hn::Add(shifted, hn::Set(du, 112u << 23));  // the bias is 127, not 15
    // In units of 2^-24, which avoids subnormal fp32 values.
    const auto units = hn::ConvertTo(D(), hn::BitCast(hn::RebindToSigned<D>(), magnitude));
    const auto subnormal = hn::BitCast(du, hn::Mul(units, hn::Set(D(), 0x1p-24f)));
    const auto infinite = hn::Or(shifted, hn::Set(du, 0x7f800000));
    const auto nan = hn::Or(infinite, hn::Set(du, 0x400000));  // quiet
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x400)), subnormal, normal);
    result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x7c00)), result, infinite);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7c00)), nan, result);
    return hn::BitCast(D(), hn::Or(result, sign));
  }
#else
  HWY_INLINE static hn::Vec<D> Load(const Storage* from) {
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(D(), hn::BitCast(dh, hn::LoadU(Half(), from)));
  }
#endif
  // With integers, because not every instruction set that Highway emulates rounds to nearest even.
  HWY_INLINE static void Store(hn::Vec<D> value, Storage* to) {
    const Bits du;
    const auto bits = hn::BitCast(du, value);
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffff));
    // Normal results: change the bias by 127 - 15 and round at bit 13; a carry goes into the
    // exponent.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
    const auto rebiased = hn::Sub(magnitude, hn::Set(du, 112u << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(rebiased, hn::Set(du, 0xfff)), odd));
    // Subnormal results: adding one half makes the adder round at 2^-24, the unit of the result.
    const auto half = hn::Set(D(), 0.5f);
    const auto shifted = hn::Add(hn::BitCast(D(), magnitude), half);
    const auto subnormal = hn::Sub(hn::BitCast(du, shifted), hn::BitCast(du, half));
    const auto nan =
        hn::Or(hn::Set(du, 0x7e00), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ff)));
    const auto smallest_normal = hn::Set(du, 113u << 23);
    const auto first_infinite = hn::Set(du, 0x477ff000);  // 65520, half-way beyond the largest
    auto result = hn::IfThenElse(hn::Lt(magnitude, smallest_normal), subnormal, normal);
    result = hn::IfThenElse(hn::Lt(magnitude, first_infinite), result, hn::Set(du, 0x7c00));
    result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), nan, result);
    StoreLow16(hn::Or(result, sign), to);
  }
};

template <ReduceOp kOp, class D, class V = hn::Vec<D>>
HWY_INLINE V Combine(D, V left, V right) {
  if constexpr (kOp == ReduceOp::kSum) {
    return hn::Add(left, right);
  } else if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    const auto wins = kOp == ReduceOp::kMin ? hn::Lt(right, left) : hn::Gt(right, left);
    // A NaN on the left stays, because no comparison with it is true.
    return hn::IfThenElse(hn::Or(wins, hn::IsNaN(right)), right, left);
  } else {
    return kOp == ReduceOp::kMin ? hn::Min(left, right) : hn::Max(left, right);
  }
}

template <class Format, ReduceOp kOp>
HWY_INLINE void Finish(hn::Vec<typename Format::D> sum, double scale,
                       typename Format::Storage* to) {
  using D = typename Format::D;
  using Element = hn::TFromD<D>;
  if constexpr (kOp == ReduceOp::kSum && hwy::IsFloat<Element>()) {
    sum = hn::Mul(sum, hn::Set(D(), static_cast<Element>(scale)));
  }
  Format::Store(sum, to);
}

// Four vectors at a time: enough additions in flight to hide their latency.
template <class Format, ReduceOp kOp>
HWY_INLINE void ReduceBlock(const std::byte* const* inputs, size_t input_count, size_t begin,
                            double scale, typename Format::Storage* out) {
  using Storage = typename Format::Storage;
  const typename Format::D d;
  const size_t n = hn::Lanes(d);
  const Storage* first = reinterpret_cast<const Storage*>(inputs[0]) + begin;
  auto sum0 = Format::Load(first);
  auto sum1 = Format::Load(first + n);
  auto sum2 = Format::Load(first + 2 * n);
  auto sum3 = Format::Load(first + 3 * n);
  for (size_t k = 1; k < input_count; ++k) {
    const Storage* next = reinterpret_cast<const Storage*>(inputs[k]) + begin;
    sum0 = Combine<kOp>(d, sum0, Format::Load(next));
    sum1 = Combine<kOp>(d, sum1, Format::Load(next + n));
    sum2 = Combine<kOp>(d, sum2, Format::Load(next + 2 * n));
    sum3 = Combine<kOp>(d, sum3, Format::Load(next + 3 * n));
  }
  Finish<Format, kOp>(sum0, scale, out + begin);
  Finish<Format, kOp>(sum1, scale, out + begin + n);
  Finish<Format, kOp>(sum2, scale, out + begin + 2 * n);
  Finish<Format, kOp>(sum3, scale, out + begin + 3 * n);
}

// At most one vector, through zeroed copies, so that nothing beyond `count` is read or written.
template <class Format, ReduceOp kOp>
HWY_INLINE void ReduceRest(const std::byte* const* inputs, size_t input_count, size_t begin,
                           size_t count, double scale, typename Format::Storage* out) {
  using Storage = typename Format::Storage;
  const typename Format::D d;
  HWY_ALIGN Storage padded[hn::MaxLanes(d)] = {};
  auto load = [&](size_t k) {
    std::memcpy(padded, inputs[k] + begin * sizeof(Storage), count * sizeof(Storage));
    return Format::Load(padded);
  };
  auto sum = load(0);
  for (size_t k = 1; k < input_count; ++k) sum = Combine<kOp>(d, sum, load(k));
  Finish<Format, kOp>(sum, scale, padded);
  std::memcpy(out + begin, padded, count * sizeof(Storage));
}

template <class Format, ReduceOp kOp>
void ReduceAll(const std::byte* const* inputs, size_t input_count, std::byte* out, size_t count,
               double scale) {
  using Storage = typename Format::Storage;
  const size_t lanes = hn::Lanes(typename Format::D());
  auto* to = reinterpret_cast<Storage*>(out);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    ReduceBlock<Format, kOp>(inputs, input_count, i, scale, to);
  }
  for (; i < count; i += lanes) {
    ReduceRest<Format, kOp>(inputs, input_count, i, std::min(lanes, count - i), scale, to);
  }
}

template <class Format>
void ReduceFormat(const std::byte* const* inputs, size_t input_count, std::byte* out, size_t count,
                  ReduceOp op, double scale) {
  switch (op) {
    case ReduceOp::kSum:
      return ReduceAll<Format, ReduceOp::kSum>(inputs, input_count, out, count, scale);
    case ReduceOp::kMin:
      return ReduceAll<Format, ReduceOp::kMin>(inputs, input_count, out, count, scale);
    case ReduceOp::kMax:
      return ReduceAll<Format, ReduceOp::kMax>(inputs, input_count, out, count, scale);
  }
}

// Whole vectors, then the rest through zeroed copies.
template <class Format>
void Widen(const std::byte* in, float* out, size_t count) {
  const typename Format::D d;
  const size_t lanes = hn::Lanes(d);
  const auto* from = reinterpret_cast<const uint16_t*>(in);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Format::Load(from + i), d, out + i);
  if (i == count) return;
  HWY_ALIGN uint16_t padded[hn::MaxLanes(d)] = {};
  HWY_ALIGN float wide[hn::MaxLanes(d)];
  std::memcpy(padded, from + i, (count - i) * sizeof(uint16_t));
  hn::StoreU(Format::Load(padded), d, wide);
  std::memcpy(out + i, wide, (count - i) * sizeof(float));
}

template <class Format>
void Narrow(const float* in, std::byte* out, size_t count) {
  const typename Format::D d;
  const size_t lanes = hn::Lanes(d);
  auto* to = reinterpret_cast<uint16_t*>(out);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) Format::Store(hn::LoadU(d, in + i), to + i);
  if (i == count) return;
  HWY_ALIGN float wide[hn::MaxLanes(d)] = {};
  HWY_ALIGN uint16_t padded[hn::MaxLanes(d)];
  std::memcpy(wide, in + i, (count - i) * sizeof(float));
  Format::Store(hn::LoadU(d, wide), padded);
  std::memcpy(to + i, padded, (count - i) * sizeof(uint16_t));
}

}  // namespace

void WidenTarget(const std::byte* in, float* out, size_t count, DType dtype) {
  if (dtype == DType::kBFloat16) return Widen<BFloat16Format>(in, out, count);
  return Widen<Float16Format>(in, out, count);
}

void NarrowTarget(const float* in, std::byte* out, size_t count, DType dtype) {
  if (dtype == DType::kBFloat16) return Narrow<BFloat16Format>(in, out, count);
  return Narrow<Float16Format>(in, out, count);
}

void ReduceTarget(const std::byte* const* inputs, size_t input_count, std::byte* out, size_t count,
                  DType dtype, ReduceOp op, double scale) {
  switch (dtype) {
    case DType::kFloat32:
      return ReduceFormat<Plain<float>>(inputs, input_count, out, count, op, scale);
    case DType::kBFloat16:
      return ReduceFormat<BFloat16Format>(inputs, input_count, out, count, op, scale);
    case DType::kFloat16:
      return ReduceFormat<Float16Format>(inputs, input_count, out, count, op, scale);
    case DType::kFloat64:
      return ReduceFormat<Plain<double>>(inputs, input_count, out, count, op, scale);
    case DType::kInt32:
      return ReduceFormat<Plain<int32_t>>(inputs, input_count, out, count, op, scale);
    case DType::kInt64:
      return ReduceFormat<Plain<int64_t>>(inputs, input_count, out, count, op, scale);
    case DType::kUint8:
      return ReduceFormat<Plain<uint8_t>>(inputs, input_count, out, count, op, scale);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::collectives
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::collectives {

void ReduceInOrder(std::span<const std::byte* const> inputs, std::byte* out, size_t count,
                   DType dtype, ReduceOp op, double scale) {
  GEMINID_KERNEL_LOOP(ReduceTarget)
  (inputs.data(), inputs.size(), out, count, dtype, op, scale);
}

void WidenToFloat(const std::byte* in, float* out, size_t count, DType dtype) {
  GEMINID_KERNEL_LOOP(WidenTarget)(in, out, count, dtype);
}

void NarrowFromFloat(const float* in, std::byte* out, size_t count, DType dtype) {
  GEMINID_KERNEL_LOOP(NarrowTarget)(in, out, count, dtype);
}

}  // namespace geminid::collectives
#endif  // HWY_ONCE
