#include "client/device/host/host_ops.h"

#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/device/host/add_elements.h"
#include "client/device/segment_arrays.h"
#include "kernels/numeric/accumulate/accumulate.h"
#include "kernels/numeric/norm/norm.h"
#include "kernels/numeric/split_master/split_master.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/parallel/pieces.h"

namespace geminid::device {
namespace {

using collectives::DType;
using kernels::BFloat16;
using kernels::Status;

template <typename T>
const T* As(const Elements& elements) {
  return reinterpret_cast<const T*>(elements.data);
}

Status ApplyInPieces(const kernels::ShardedStep& step, const kernels::Segment& segment,
                     const kernels::ParameterArrays& to, kernels::ThreadPool* threads) {
  if (step.OfMatrices(segment)) return step.ApplyMatrices(segment, to, threads);
  std::atomic<Status> status = Status::kOk;
  kernels::RunInPieces(threads, segment.count, [&](size_t begin, size_t end) {
    const Status done =
        step.Apply(PartOf(segment, begin, end - begin), kernels::Advance(to, begin));
    if (done != Status::kOk) status.store(done);
  });
  return status.load();
}

}  // namespace

void HostOps::Run(Stream& stream, const char* name, std::function<Status()> kernel) {
  stream.Enqueue([this, name, kernel = std::move(kernel)] {
    const Status status = kernel();
    if (status == Status::kOk) return;
    const std::lock_guard lock(mutex_);
    status_.Update(kernels::FromKernel(status, name));
  });
}

// --- addresses ----------------------------------------------------------------------------------

Elements HostOps::OnHost(const Elements& elements) const {
  return {OnHost(elements.data), elements.count, elements.type};
}

kernels::Segment HostOps::OnHost(const kernels::Segment& segment) const {
  kernels::Segment there = segment;
  kernels::ConstParameterArrays& arrays = there.arrays;
  arrays.master = OnHost(arrays.master);
  arrays.bfloat16 = OnHost(arrays.bfloat16);
  arrays.remainder = OnHost(arrays.remainder);
  for (const float*& state : arrays.state) state = OnHost(state);
  for (const BFloat16*& state : arrays.small_state) state = OnHost(state);
  there.gradient.data = OnHost(static_cast<const std::byte*>(segment.gradient.data));
  return there;
}

kernels::ParameterArrays HostOps::OnHost(const kernels::ParameterArrays& arrays) const {
  kernels::ParameterArrays there = arrays;
  there.master = OnHost(arrays.master);
  there.bfloat16 = OnHost(arrays.bfloat16);
  there.remainder = OnHost(arrays.remainder);
  for (float*& state : there.state) state = OnHost(state);
  for (BFloat16*& state : there.small_state) state = OnHost(state);
  return there;
}

// --- the operations ------------------------------------------------------------------------------

void HostOps::Zero(Stream& stream, std::byte* to, uint64_t bytes) {
  stream.Enqueue([to = OnHost(to), bytes] { std::memset(to, 0, bytes); });
}

void HostOps::Copy(Stream& stream, std::byte* to, const std::byte* from, uint64_t bytes) {
  stream.Enqueue([to = OnHost(to), from = OnHost(from), bytes] { std::memcpy(to, from, bytes); });
}

void HostOps::Assign(Stream& stream, const Elements& from, std::byte* to, DType type) {
  stream.Enqueue([from = OnHost(from), to = OnHost(to), type] {
    AddElements(from, /*accumulates=*/false, to, type);
  });
}

void HostOps::Add(Stream& stream, const Elements& from, std::byte* to, DType type) {
  stream.Enqueue([from = OnHost(from), to = OnHost(to), type] {
    AddElements(from, /*accumulates=*/true, to, type);
  });
}

void HostOps::Accumulate(Stream& stream, const Elements& from, float scale, float* sum) {
  Run(stream, "Accumulate", [from = OnHost(from), scale, sum = OnHost(sum)] {
    return from.type == DType::kBFloat16
               ? kernels::Accumulate(As<BFloat16>(from), scale, from.count, sum)
               : kernels::Accumulate(As<float>(from), scale, from.count, sum);
  });
}

void HostOps::SumSquares(Stream& stream, const Elements& values, double* sum) {
  Run(stream, "AddSquares", [values = OnHost(values), sum] {
    kernels::SquareSum total;
    const Status status = values.type == DType::kBFloat16
                              ? kernels::AddSquares(As<BFloat16>(values), values.count, &total)
                              : kernels::AddSquares(As<float>(values), values.count, &total);
    *sum = total.sum;
    return status;
  });
}

void HostOps::JoinMaster(Stream& stream, const BFloat16* weight, const int16_t* remainder,
                         uint64_t count, float* master) {
  Run(stream, "JoinMaster",
      [weight = OnHost(weight), remainder = OnHost(remainder), count, master = OnHost(master)] {
        if (remainder != nullptr) return kernels::JoinMaster(weight, remainder, count, master);
        for (uint64_t i = 0; i < count; ++i) master[i] = weight[i].ToFloat();
        return Status::kOk;
      });
}

void HostOps::SplitMaster(Stream& stream, const float* master, uint64_t count, BFloat16* weight,
                          int16_t* remainder) {
  Run(stream, "SplitMaster",
      [master = OnHost(master), count, weight = OnHost(weight), remainder = OnHost(remainder)] {
        if (remainder != nullptr) return kernels::SplitMaster(master, count, weight, remainder);
        for (uint64_t i = 0; i < count; ++i) {
          uint32_t bits;
          std::memcpy(&bits, &master[i], sizeof(bits));
          weight[i] = kernels::SplitMasterBits(bits).weight;
        }
        return Status::kOk;
      });
}

void HostOps::Apply(Stream& stream, const kernels::ShardedStep& step,
                    const kernels::Segment& segment, const kernels::ParameterArrays& to,
                    kernels::ThreadPool* threads) {
  Run(stream, "ShardedStep", [&step, segment = OnHost(segment), to = OnHost(to), threads] {
    return ApplyInPieces(step, segment, to, threads);
  });
}

Status HostOps::Prepare(Stream& stream, kernels::ShardedStep* step,
                        const kernels::StepScalars& scalars,
                        std::span<const kernels::Segment> segments, const float* old_factors,
                        const kernels::ReduceSum& reduce, float* new_factors,
                        float* /* device_scales */) {
  std::vector<kernels::Segment> there;
  for (const kernels::Segment& segment : segments) there.push_back(OnHost(segment));
  Status status = Status::kOk;
  stream.Enqueue([&] {
    status = step->Prepare(scalars, there, OnHost(old_factors), reduce, OnHost(new_factors));
  });
  stream.Synchronize();
  return status;
}

absl::Status HostOps::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

absl::Status HostOps::Synchronize(Stream& stream, absl::Duration timeout) {
  if (!stream.Record()->WaitFor(timeout)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the device did not finish its queued work within ",
                     absl::FormatDuration(timeout), "; see whether the device still answers"));
  }
  return status();
}

}  // namespace geminid::device
