#include "tools/bench/memory_traffic.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/bench/memory_traffic.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace geminid {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLineBytes = 64;
constexpr size_t kGroup = 64;  // elements, so an array has bytes_per_element lines in a group
constexpr size_t kPrefetchElements = 256;  // as in the kernels

template <bool kStreaming>
HWY_INLINE uint64_t Move(const Traffic* arrays, size_t count, size_t begin, size_t end) {
  const hn::ScalableTag<uint64_t> d;
  const size_t step = hn::Lanes(d) * sizeof(uint64_t);
  auto sum = hn::Zero(d);
  for (size_t i = begin; i < end; i += kGroup) {
    for (size_t a = 0; a < count; ++a) {
      const Traffic& t = arrays[a];
      const size_t first = i * t.bytes_per_element;
      const size_t last = first + kGroup * t.bytes_per_element;
      const size_t ahead = kPrefetchElements * t.bytes_per_element;
      for (size_t at = first; t.read != nullptr && at < last; at += kLineBytes) {
        hwy::Prefetch(t.read + ahead + at);
      }
      for (size_t at = first; at < last; at += step) {
        auto v = hn::Zero(d);
        if (t.read != nullptr) v = hn::Load(d, reinterpret_cast<const uint64_t*>(t.read + at));
        if (t.write == nullptr) {
          sum = hn::Xor(sum, v);
        } else if (kStreaming) {
          hn::Stream(v, d, reinterpret_cast<uint64_t*>(t.write + at));
        } else {
          hn::Store(v, d, reinterpret_cast<uint64_t*>(t.write + at));
        }
      }
    }
  }
  if (kStreaming) hwy::FlushStream();
  return hn::GetLane(sum);
}

uint64_t MoveOrdinary(const Traffic* arrays, size_t count, size_t begin, size_t end) {
  return Move<false>(arrays, count, begin, end);
}
uint64_t MoveStreaming(const Traffic* arrays, size_t count, size_t begin, size_t end) {
  return Move<true>(arrays, count, begin, end);
}

template <class Operation>
HWY_INLINE void Pass(const float* a, const float* b, float* out, size_t count,
                     Operation operation) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    hn::Store(operation(hn::Load(d, a + i), hn::Load(d, b + i)), d, out + i);
  }
}

void Multiply(const float* a, const float* b, float* out, size_t n) {
  Pass(a, b, out, n, [](auto x, auto y) { return hn::Mul(x, y); });
}
void Scale(const float* a, float factor, float* out, size_t n) {
  const auto f = hn::Set(hn::ScalableTag<float>(), factor);
  Pass(a, a, out, n, [f](auto x, auto) { return hn::Mul(x, f); });
}
void Add(const float* a, const float* b, float* out, size_t n) {
  Pass(a, b, out, n, [](auto x, auto y) { return hn::Add(x, y); });
}
void Shift(const float* a, float term, float* out, size_t n) {
  const auto t = hn::Set(hn::ScalableTag<float>(), term);
  Pass(a, a, out, n, [t](auto x, auto) { return hn::Add(x, t); });
}
void Subtract(const float* a, const float* b, float* out, size_t n) {
  Pass(a, b, out, n, [](auto x, auto y) { return hn::Sub(x, y); });
}
void Divide(const float* a, const float* b, float* out, size_t n) {
  Pass(a, b, out, n, [](auto x, auto y) { return hn::Div(x, y); });
}
void Root(const float* a, float* out, size_t n) {
  Pass(a, a, out, n, [](auto x, auto) { return hn::Sqrt(x); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace geminid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid {

HWY_EXPORT(MoveOrdinary);
HWY_EXPORT(MoveStreaming);
HWY_EXPORT(Multiply);
HWY_EXPORT(Scale);
HWY_EXPORT(Add);
HWY_EXPORT(Shift);
HWY_EXPORT(Subtract);
HWY_EXPORT(Divide);
HWY_EXPORT(Root);

uint64_t MoveTraffic(std::span<const Traffic> arrays, size_t begin, size_t end, bool streaming) {
  return streaming ? HWY_DYNAMIC_DISPATCH(MoveStreaming)(arrays.data(), arrays.size(), begin, end)
                   : HWY_DYNAMIC_DISPATCH(MoveOrdinary)(arrays.data(), arrays.size(), begin, end);
}

void MultiplyPass(const float* a, float factor, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(Scale)(a, factor, out, count);
}
void MultiplyPass(const float* a, const float* b, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(Multiply)(a, b, out, count);
}
void AddPass(const float* a, const float* b, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(Add)(a, b, out, count);
}
void AddPass(const float* a, float term, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(Shift)(a, term, out, count);
}
void SubtractPass(const float* a, const float* b, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(Subtract)(a, b, out, count);
}
void DividePass(const float* a, const float* b, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(Divide)(a, b, out, count);
}
void RootPass(const float* a, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(Root)(a, out, count);
}

}  // namespace geminid
#endif  // HWY_ONCE
