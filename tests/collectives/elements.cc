#include "tests/collectives/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <utility>

namespace geminid::collectives {
namespace {

template <class T>
T Get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void Put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

double Decode(const std::byte* from, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return Get<float>(from);
    case DType::kBFloat16:
      return DecodeHalf(Get<uint16_t>(from), kBFloat16ExponentBits);
    case DType::kFloat16:
      return DecodeHalf(Get<uint16_t>(from), kFloat16ExponentBits);
    case DType::kFloat64:
      return Get<double>(from);
    case DType::kInt32:
      return Get<int32_t>(from);
    case DType::kInt64:
      return static_cast<double>(Get<int64_t>(from));
    case DType::kUint8:
      return Get<uint8_t>(from);
  }
  return 0;
}

void Encode(double value, DType dtype, std::byte* to) {
  switch (dtype) {
    case DType::kFloat32:
      return Put(to, static_cast<float>(value));
    case DType::kBFloat16:
      return Put(to, EncodeHalf(value, kBFloat16ExponentBits));
    case DType::kFloat16:
      return Put(to, EncodeHalf(value, kFloat16ExponentBits));
    case DType::kFloat64:
      return Put(to, value);
    case DType::kInt32:
      return Put(to, static_cast<int32_t>(value));
    case DType::kInt64:
      return Put(to, static_cast<int64_t>(value));
    case DType::kUint8:
      return Put(to, static_cast<uint8_t>(value));
  }
}

template <class T>
T Fold(ReduceOp op, T left, T right) {
  if (op == ReduceOp::kSum) return static_cast<T>(left + right);
  if (op == ReduceOp::kMin) return right < left ? right : left;
  return right > left ? right : left;
}

}  // namespace

namespace {

// The value by the definition of the format.
double ValueOfHalf(uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// The values of all patterns, computed once, because the suites search them millions of times.
const std::vector<double>& HalfValues(int exponent_bits) {
  const auto all = [](int bits_of_exponent) {
    std::vector<double> values(1 << 16);
    for (size_t bits = 0; bits < values.size(); ++bits) {
      values[bits] = ValueOfHalf(static_cast<uint16_t>(bits), bits_of_exponent);
    }
    return values;
  };
  static const std::vector<double> float16 = all(kFloat16ExponentBits);
  static const std::vector<double> bfloat16 = all(kBFloat16ExponentBits);
  return exponent_bits == kFloat16ExponentBits ? float16 : bfloat16;
}

// Random numbers of moderate size. Many tests use the same ones, as elements of other types.
const std::vector<double>& RandomNumbers(size_t count, uint64_t seed) {
  static std::mutex mutex;
  static std::map<std::pair<size_t, uint64_t>, std::vector<double>> known;
  const std::lock_guard lock(mutex);
  std::vector<double>& numbers = known[{count, seed}];
  if (numbers.size() == count) return numbers;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> exponent(-6, 6);
  for (size_t i = 0; i < count; ++i)
    numbers.push_back(std::ldexp(normal(random), exponent(random)));
  return numbers;
}

}  // namespace

double DecodeHalf(uint16_t bits, int exponent_bits) { return HalfValues(exponent_bits)[bits]; }

uint16_t EncodeHalf(double value, int exponent_bits) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << (15 - exponent_bits));
  // Positive patterns are ordered like their values: find the last one not above the magnitude.
  const std::vector<double>& values = HalfValues(exponent_bits);
  uint16_t low = 0;
  uint16_t high = infinity;
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (values[middle] <= magnitude ? low : high) = middle;
  }
  const double below = DecodeHalf(low, exponent_bits);
  // The value after the largest finite one decides about infinity.
  const double above =
      high == infinity ? below + (below - DecodeHalf(static_cast<uint16_t>(low - 1), exponent_bits))
                       : DecodeHalf(high, exponent_bits);
  const double to_low = magnitude - below;
  const double to_high = above - magnitude;
  const bool up = to_high < to_low || (to_high == to_low && (low & 1) != 0);
  return static_cast<uint16_t>((up ? high : low) | sign);
}

std::vector<std::byte> Pattern(DType dtype, size_t count, int rank) {
  std::vector<std::byte> elements(count * SizeOf(dtype));
  for (size_t i = 0; i < count; ++i) {
    const double whole = static_cast<double>((i * 7 + static_cast<size_t>(rank) * 31) % 61);
    Encode(IsFloating(dtype) ? whole - 30.5 : whole, dtype, elements.data() + i * SizeOf(dtype));
  }
  return elements;
}

std::vector<std::byte> RandomElements(DType dtype, size_t count, uint64_t seed) {
  const std::vector<double>& numbers = RandomNumbers(count, seed);
  std::vector<std::byte> elements(count * SizeOf(dtype));
  for (size_t i = 0; i < count; ++i) {
    double value = numbers[i];
    if (dtype == DType::kUint8) value = std::min(60.0, std::abs(value));
    if (dtype == DType::kInt32 || dtype == DType::kInt64) value *= 1000;
    Encode(value, dtype, elements.data() + i * SizeOf(dtype));
  }
  return elements;
}

std::vector<std::byte> ReduceOneByOne(const std::vector<std::vector<std::byte>>& inputs,
                                      DType dtype, ReduceOp op, double scale) {
  const size_t width = SizeOf(dtype);
  std::vector<std::byte> out(inputs[0].size());
  for (size_t at = 0; at < out.size(); at += width) {
    double result = Decode(inputs[0].data() + at, dtype);
    for (size_t k = 1; k < inputs.size(); ++k) {
      const double next = Decode(inputs[k].data() + at, dtype);
      // fp64 holds the sum of two fp32 numbers of similar size exactly, so this rounds like fp32.
      result = IsFloating(dtype) && dtype != DType::kFloat64
                   ? Fold(op, static_cast<float>(result), static_cast<float>(next))
                   : Fold(op, result, next);
    }
    if (IsFloating(dtype)) {
      result = dtype == DType::kFloat64 ? result * scale
                                        : static_cast<float>(result) * static_cast<float>(scale);
    }
    Encode(result, dtype, out.data() + at);
  }
  return out;
}

double ValueOf(const std::vector<std::byte>& elements, size_t index, DType dtype) {
  return Decode(elements.data() + index * SizeOf(dtype), dtype);
}

}  // namespace geminid::collectives
