#include "collectives/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "collectives/half.h"

// Everything below is forced inline into three twins of one entry function, compiled for AVX-512,
// AVX2 and the baseline. (target_clones would do the same through an ifunc, whose resolver runs
// before the sanitizers are set up.) Without contraction all three compute the same bits.
#define GEMINID_INLINE [[gnu::always_inline]] inline

namespace geminid::collectives {
namespace {

// Elements reduced at a time: the accumulators (2 or 4 KiB) stay in the first-level cache.
constexpr size_t kBlock = 512;

template <DType kType>
struct Format;
template <class Element>
struct Plain {
  using Storage = Element;
  using Wide = Element;
  GEMINID_INLINE static Wide Load(Storage value) { return value; }
  GEMINID_INLINE static Storage Store(Wide value) { return value; }
};
template <>
struct Format<DType::kFloat32> : Plain<float> {};
template <>
struct Format<DType::kFloat64> : Plain<double> {};
// Unsigned, so that overflow wraps; the order of kMin and kMax is restored in Combine.
template <>
struct Format<DType::kInt32> : Plain<uint32_t> {};
template <>
struct Format<DType::kInt64> : Plain<uint64_t> {};
template <>
struct Format<DType::kUint8> : Plain<uint8_t> {};
template <>
struct Format<DType::kBFloat16> {
  using Storage = BFloat16;
  using Wide = float;
  GEMINID_INLINE static Wide Load(Storage value) { return ToFloat(value); }
  GEMINID_INLINE static Storage Store(Wide value) { return ToBFloat16(value); }
};
template <>
struct Format<DType::kFloat16> {
  using Storage = Float16;
  using Wide = float;
  GEMINID_INLINE static Wide Load(Storage value) { return ToFloat(value); }
  GEMINID_INLINE static Storage Store(Wide value) { return ToFloat16(value); }
};

template <DType kType, ReduceOp kOp, class Wide>
GEMINID_INLINE Wide Combine(Wide left, Wide right) {
  if constexpr (kOp == ReduceOp::kSum) {
    return static_cast<Wide>(left + right);
  } else if constexpr (std::is_floating_point_v<Wide>) {
    const bool take = kOp == ReduceOp::kMin ? right < left : right > left;
    return (take || right != right) ? right : left;  // a NaN on the left never loses
  } else if constexpr (kType == DType::kUint8) {
    return kOp == ReduceOp::kMin ? std::min(left, right) : std::max(left, right);
  } else {
    using Signed = std::make_signed_t<Wide>;
    const bool take = kOp == ReduceOp::kMin
                          ? static_cast<Signed>(right) < static_cast<Signed>(left)
                          : static_cast<Signed>(right) > static_cast<Signed>(left);
    return take ? right : left;
  }
}

template <class Storage>
GEMINID_INLINE Storage Peek(const std::byte* from, size_t index) {
  Storage value;
  std::memcpy(&value, from + index * sizeof(Storage), sizeof(Storage));
  return value;
}

template <class Storage>
GEMINID_INLINE void Poke(std::byte* to, size_t index, Storage value) {
  std::memcpy(to + index * sizeof(Storage), &value, sizeof(Storage));
}

template <DType kType, ReduceOp kOp>
GEMINID_INLINE void ReduceBlock(std::span<const std::byte* const> inputs, std::byte* out,
                                size_t offset, size_t count, typename Format<kType>::Wide scale) {
  using F = Format<kType>;
  using Storage = typename F::Storage;
  using Wide = typename F::Wide;
  alignas(64) Wide sums[kBlock];
  const size_t start = offset * sizeof(Storage);
  const std::byte* first = inputs[0] + start;
  for (size_t i = 0; i < count; ++i) sums[i] = F::Load(Peek<Storage>(first, i));
  for (size_t k = 1; k < inputs.size(); ++k) {
    const std::byte* next = inputs[k] + start;
    for (size_t i = 0; i < count; ++i) {
      sums[i] = Combine<kType, kOp>(sums[i], F::Load(Peek<Storage>(next, i)));
    }
  }
  std::byte* to = out + start;
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_floating_point_v<Wide>) {
      Poke<Storage>(to, i, F::Store(sums[i] * scale));
    } else {
      Poke<Storage>(to, i, F::Store(sums[i]));
    }
  }
}

template <DType kType, ReduceOp kOp>
GEMINID_INLINE void ReduceAll(std::span<const std::byte* const> inputs, std::byte* out,
                              size_t count, double scale) {
  using Wide = typename Format<kType>::Wide;
  const auto wide_scale = static_cast<Wide>(scale);
  size_t offset = 0;
  for (; offset + kBlock <= count; offset += kBlock) {
    ReduceBlock<kType, kOp>(inputs, out, offset, kBlock, wide_scale);
  }
  if (offset < count) ReduceBlock<kType, kOp>(inputs, out, offset, count - offset, wide_scale);
}

struct Arguments {
  std::span<const std::byte* const> inputs;
  std::byte* out;
  size_t count;
  double scale;
};

#if defined(__x86_64__)
template <DType kType, ReduceOp kOp>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void RunAvx512(
    const Arguments& a) {
  ReduceAll<kType, kOp>(a.inputs, a.out, a.count, a.scale);
}
template <DType kType, ReduceOp kOp>
[[gnu::target("avx2")]] void RunAvx2(const Arguments& a) {
  ReduceAll<kType, kOp>(a.inputs, a.out, a.count, a.scale);
}
#endif
template <DType kType, ReduceOp kOp>
void RunBaseline(const Arguments& a) {
  ReduceAll<kType, kOp>(a.inputs, a.out, a.count, a.scale);
}

template <DType kType, ReduceOp kOp>
void Run(const Arguments& arguments) {
#if defined(__x86_64__)
  static const bool has_avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx512) return RunAvx512<kType, kOp>(arguments);
  if (has_avx2) return RunAvx2<kType, kOp>(arguments);
#endif
  RunBaseline<kType, kOp>(arguments);
}

template <DType kType>
void RunOp(ReduceOp op, const Arguments& arguments) {
  switch (op) {
    case ReduceOp::kSum:
      return Run<kType, ReduceOp::kSum>(arguments);
    case ReduceOp::kMin:
      return Run<kType, ReduceOp::kMin>(arguments);
    case ReduceOp::kMax:
      return Run<kType, ReduceOp::kMax>(arguments);
  }
}

}  // namespace

void ReduceInOrder(std::span<const std::byte* const> inputs, std::byte* out, size_t count,
                   DType dtype, ReduceOp op, double scale) {
  const Arguments arguments{inputs, out, count, scale};
  switch (dtype) {
    case DType::kFloat32:
      return RunOp<DType::kFloat32>(op, arguments);
    case DType::kBFloat16:
      return RunOp<DType::kBFloat16>(op, arguments);
    case DType::kFloat16:
      return RunOp<DType::kFloat16>(op, arguments);
    case DType::kFloat64:
      return RunOp<DType::kFloat64>(op, arguments);
    case DType::kInt32:
      return RunOp<DType::kInt32>(op, arguments);
    case DType::kInt64:
      return RunOp<DType::kInt64>(op, arguments);
    case DType::kUint8:
      return RunOp<DType::kUint8>(op, arguments);
  }
}

}  // namespace geminid::collectives
