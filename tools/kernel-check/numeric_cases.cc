#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/numeric/accumulate/accumulate.h"
#include "kernels/numeric/accumulate/accumulate_cuda.h"
#include "kernels/numeric/cast/cast.h"
#include "kernels/numeric/cast/cast_cuda.h"
#include "kernels/numeric/reduce_rows/reduce_rows_cuda.h"
#include "kernels/numeric/split_master/split_master.h"
#include "kernels/numeric/split_master/split_master_cuda.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

using kernels::BFloat16;
using kernels::Float16;
using kernels::Status;

constexpr size_t kTimedCount = size_t{64} << 20;

struct Size {
  size_t count;
  size_t shift;  // elements before a word
};
// No element, one, ends of packs, whole and partial blocks, unaligned arrays.
constexpr Size kSizes[] = {{0, 0}, {1, 0}, {3, 1}, {4096, 0}, {4097, 0}, {12301, 0}, {12301, 1}};

template <class Check>
KernelCase Sized(const char* name, Check check) {
  KernelCase one;
  one.name = name;
  for (const Size& size : kSizes) {
    one.compared.emplace_back([check, size](Trial& trial) { check(trial, size); });
  }
  one.timed = [check](Trial& trial) { check(trial, Size{kTimedCount, 0}); };
  return one;
}

template <typename From, typename To>
auto CastCheck(Status (*host)(const From*, size_t, To*),
               Status (*device)(const From*, size_t, To*, kernels::CudaStream)) {
  return [host, device](Trial& trial, const Size& size) {
    const auto in = trial.In(RandomArray<From>(size.count, 1, 300.0F), size.shift);
    const auto out = trial.Out("output", std::vector<To>(size.count), size.shift);
    trial.Run([&] { return host(in.host, size.count, out.host); },
              [&] { return device(in.device, size.count, out.device, nullptr); });
  };
}

template <typename T>
void CheckAccumulate(Trial& trial, const Size& size) {
  constexpr float kScale = 0.37F;  // rounds
  const auto in = trial.In(RandomArray<T>(size.count, 2), size.shift);
  const auto sum = trial.Out("accumulator", RandomArray<float>(size.count, 3), size.shift, 0, 2);
  trial.Run(
      [&] { return kernels::Accumulate(in.host, kScale, size.count, sum.host); },
      [&] { return kernels::AccumulateCuda(in.device, kScale, size.count, sum.device, nullptr); });
}

float Float(float value) { return value; }
float Float(BFloat16 value) { return value.ToFloat(); }

template <typename From, typename To>
void CheckAdd(Trial& trial, const Size& size) {
  const auto in = trial.In(RandomArray<From>(size.count, 4), size.shift);
  const auto sum = trial.Out("sum", RandomArray<To>(size.count, 5), size.shift, 0, 2);
  trial.Run(
      [&] {
        for (size_t i = 0; i < size.count; ++i) {
          const float total = Float(sum.host[i]) + Float(in.host[i]);
          if constexpr (std::is_same_v<To, float>) {
            sum.host[i] = total;
          } else {
            sum.host[i] = To::FromFloat(total);
          }
        }
        return Status::kOk;
      },
      [&] { return kernels::AddCuda(in.device, size.count, sum.device, nullptr); });
}

void CheckSplit(Trial& trial, const Size& size) {
  const auto master = trial.In(RandomArray<float>(size.count, 6), size.shift);
  const auto weight = trial.Out("weight", std::vector<BFloat16>(size.count), size.shift);
  const auto rest = trial.Out("remainder", std::vector<int16_t>(size.count), size.shift);
  trial.Run([&] { return kernels::SplitMaster(master.host, size.count, weight.host, rest.host); },
            [&] {
              return kernels::SplitMasterCuda(master.device, size.count, weight.device, rest.device,
                                              nullptr);
            });
}

void CheckSplitWithoutRemainder(Trial& trial, const Size& size) {
  const auto master = trial.In(RandomArray<float>(size.count, 6), size.shift);
  const auto weight = trial.Out("weight", std::vector<BFloat16>(size.count), size.shift);
  std::vector<int16_t> unused(size.count);
  trial.Run(
      [&] { return kernels::SplitMaster(master.host, size.count, weight.host, unused.data()); },
      [&] {
        return kernels::SplitMasterCuda(master.device, size.count, weight.device, nullptr, nullptr);
      });
}

void CheckJoin(Trial& trial, const Size& size) {
  std::vector<int16_t> remainders(size.count);
  for (size_t i = 0; i < size.count; ++i) remainders[i] = static_cast<int16_t>(i * 7919);
  const auto weight = trial.In(RandomArray<BFloat16>(size.count, 7), size.shift);
  const auto rest = trial.In(std::move(remainders), size.shift);
  const auto master = trial.Out("master", std::vector<float>(size.count), size.shift);
  trial.Run([&] { return kernels::JoinMaster(weight.host, rest.host, size.count, master.host); },
            [&] {
              return kernels::JoinMasterCuda(weight.device, rest.device, size.count, master.device,
                                             nullptr);
            });
}

void CheckJoinWithoutRemainder(Trial& trial, const Size& size) {
  const auto weight = trial.In(RandomArray<BFloat16>(size.count, 7), size.shift);
  const auto master = trial.Out("master", std::vector<float>(size.count), size.shift);
  const std::vector<int16_t> none(size.count);
  trial.Run([&] { return kernels::JoinMaster(weight.host, none.data(), size.count, master.host); },
            [&] {
              return kernels::JoinMasterCuda(weight.device, nullptr, size.count, master.device,
                                             nullptr);
            });
}

constexpr size_t kRows = 3;

// Rows of any type, with sums that round and integers that wrap.
template <typename T>
std::vector<T> RowsOf(size_t count) {
  if constexpr (std::is_same_v<T, float> || !std::is_arithmetic_v<T>) {
    return RandomArray<T>(kRows * count, 8, 3.0F);
  } else {
    std::vector<T> values(kRows * count);
    for (size_t i = 0; i < values.size(); ++i) {
      const double unit = RandomUnit(i);
      if constexpr (std::is_same_v<T, double>) values[i] = unit / 3;
      if constexpr (std::is_integral_v<T>) values[i] = static_cast<T>(std::bit_cast<int64_t>(unit));
    }
    return values;
  }
}

template <typename T>
auto Widened(T value) {
  if constexpr (std::is_integral_v<T>) return static_cast<std::make_unsigned_t<T>>(value);
  if constexpr (std::is_floating_point_v<T>) return value;
  if constexpr (!std::is_arithmetic_v<T>) return value.ToFloat();
}

template <typename T>
T SumOfRows(const T* rows, size_t count, size_t at, double scale) {
  auto sum = Widened(rows[at]);
  using Sum = decltype(sum);
  for (size_t row = 1; row < kRows; ++row) {
    sum = static_cast<Sum>(sum + Widened(rows[row * count + at]));
  }
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(sum);
  } else if constexpr (std::is_floating_point_v<T>) {
    return sum * static_cast<Sum>(scale);
  } else {
    return T::FromFloat(sum * static_cast<Sum>(scale));
  }
}

template <typename T>
T LeastOfRows(const T* rows, size_t count, size_t at) {
  const auto value = [](T element) {
    if constexpr (std::is_arithmetic_v<T>) return element;
    if constexpr (!std::is_arithmetic_v<T>) return element.ToFloat();
  };
  T least = rows[at];
  for (size_t row = 1; row < kRows; ++row) {
    if (value(rows[row * count + at]) < value(least)) least = rows[row * count + at];
  }
  return least;
}

template <typename T>
void CheckReduceRows(Trial& trial, const Size& size) {
  using kernels::RowReduction;
  const double scale = std::is_integral_v<T> ? 1 : 1.0 / kRows;
  const auto rows = trial.In(RowsOf<T>(size.count), size.shift);
  const auto sum = trial.Out("sum", std::vector<T>(size.count), size.shift);
  const auto least = trial.Out("least", std::vector<T>(size.count), size.shift);
  trial.Run(
      [&] {
        for (size_t i = 0; i < size.count; ++i) {
          sum.host[i] = SumOfRows(rows.host, size.count, i, scale);
          least.host[i] = LeastOfRows(rows.host, size.count, i);
        }
        return Status::kOk;
      },
      [&] {
        const Status status = kernels::ReduceRowsCuda<T>(
            rows.device, kRows, size.count, RowReduction::kSum, scale, sum.device, nullptr);
        if (status != Status::kOk) return status;
        return kernels::ReduceRowsCuda<T>(rows.device, kRows, size.count, RowReduction::kMin, 1,
                                          least.device, nullptr);
      });
}

}  // namespace

std::vector<KernelCase> NumericCases() {
  return {
      Sized("cast, fp32 to bf16",
            CastCheck<float, BFloat16>(kernels::CastToBFloat16, kernels::CastToBFloat16Cuda)),
      Sized("cast, bf16 to fp32",
            CastCheck<BFloat16, float>(kernels::CastToFloat, kernels::CastToFloatCuda)),
      Sized("accumulate, fp32", CheckAccumulate<float>),
      Sized("accumulate, bf16", CheckAccumulate<BFloat16>),
      Sized("add, fp32 to fp32", CheckAdd<float, float>),
      Sized("add, bf16 to fp32", CheckAdd<BFloat16, float>),
      Sized("add, fp32 to bf16", CheckAdd<float, BFloat16>),
      Sized("add, bf16 to bf16", CheckAdd<BFloat16, BFloat16>),
      Sized("reduce rows, fp32", CheckReduceRows<float>),
      Sized("reduce rows, bf16", CheckReduceRows<BFloat16>),
      Sized("reduce rows, fp16", CheckReduceRows<Float16>),
      Sized("reduce rows, fp64", CheckReduceRows<double>),
      Sized("reduce rows, int32", CheckReduceRows<int32_t>),
      Sized("reduce rows, int64", CheckReduceRows<int64_t>),
      Sized("reduce rows, uint8", CheckReduceRows<uint8_t>),
      Sized("split master", CheckSplit),
      Sized("split master, no remainder", CheckSplitWithoutRemainder),
      Sized("join master", CheckJoin),
      Sized("join master, no remainder", CheckJoinWithoutRemainder),
  };
}

}  // namespace geminid::kernel_check
