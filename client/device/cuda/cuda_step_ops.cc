// Steps of optimizers on a GPU's memory.
#include <algorithm>

#include "client/device/cuda/cuda_ops.h"
#include "client/device/segment_arrays.h"
#include "kernels/optimizers/sharded_step_cuda.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::device {
namespace {

using kernels::Segment;
using kernels::Status;

template <typename T>
std::byte* Bytes(const T* place) {
  return reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(place));
}

CudaStream& Own(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace

bool CudaOps::InArena(const Segment& segment) const {
  return std::ranges::all_of(ArraysOf(segment), [this](const ArrayOf& array) {
    return array.data == nullptr || memory_.arena->Contains(array.data);
  });
}

bool CudaOps::CopyThere(CudaStream& stream, const kernels::ShardedStep& step,
                        const Segment& segment, const kernels::ParameterArrays& to) {
  if (!step.Copies(segment) || segment.arrays.form != to.form) return false;
  const std::vector<ArrayOf> old_arrays = ArraysOf(segment);
  const std::vector<ArrayOf> new_arrays = ArraysOf(to);
  for (size_t i = 0; i < new_arrays.size(); ++i) {
    const bool none = old_arrays[i].data == nullptr && new_arrays[i].data == nullptr;
    const bool there =
        memory_.arena->Contains(old_arrays[i].data) && memory_.arena->Contains(new_arrays[i].data);
    if (!none && !there) return false;
  }
  for (size_t i = 0; i < new_arrays.size(); ++i) {
    if (old_arrays[i].data == new_arrays[i].data) continue;
    stream.CopyAny(Bytes(new_arrays[i].data), old_arrays[i].data,
                   segment.count * new_arrays[i].element_bytes);
  }
  return true;
}

bool CudaOps::ApplyByKernel(CudaStream& stream, const kernels::ShardedStep& step,
                            const Segment& segment, const kernels::ParameterArrays& to) {
  if (!InArena(segment)) return false;
  for (const ArrayOf& array : ArraysOf(to)) {
    if (array.data != nullptr && !memory_.arena->Contains(array.data)) return false;
  }
  return ByKernel(stream, "ShardedStep", {},
                  [&](CUstream queue) { return kernels::ApplyCuda(step, segment, to, queue); });
}

void CudaOps::Apply(Stream& stream, const kernels::ShardedStep& step, const Segment& segment,
                    const kernels::ParameterArrays& to, kernels::ThreadPool* threads) {
  if (CopyThere(Own(stream), step, segment, to)) return;
  if (ApplyByKernel(Own(stream), step, segment, to)) return;
  const std::vector<ArrayOf> old_arrays = ArraysOf(segment);
  const std::vector<ArrayOf> new_arrays = ArraysOf(to);
  std::vector<Array> arrays;
  for (const ArrayOf& array : old_arrays) {
    arrays.push_back({Bytes(array.data), array.element_bytes, true, false});
  }
  for (const ArrayOf& array : new_arrays) {
    arrays.push_back({Bytes(array.data), array.element_bytes, false, true});
  }
  OnHost(Own(stream), arrays, segment.count,
         [this, &step, segment, to, threads](const ArraySlice& piece) {
           const std::span<std::byte* const> places(piece.places);
           const size_t reads = ArraysOf(segment).size();
           const Segment here =
               WithArrays(PartOf(segment, piece.begin, piece.count), places.first(reads));
           host_.Apply(inline_, step, here, WithArrays(to, places.subspan(reads)), threads);
         });
}

// Sums of LAMB and LARS are added piece by piece. Those of Adafactor and CAME need whole segments.
void CudaOps::AddSumsOnHost(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                            const Segment& segment, size_t index, double* sums) {
  const auto add = [of, pass, sums](const Segment& here) {
    const Status added = of->step->AddSums(pass, here, sums);
    if (of->host_status == Status::kOk) of->host_status = added;
  };
  if (of->step->FactorTotal() > 0) {
    std::optional<Segment>& fetched = of->fetched[index];
    if (!fetched.has_value()) fetched = Fetch(stream, segment, &of->storage);
    stream.Enqueue([add, here = *fetched] { add(here); });
    return;
  }
  std::vector<Array> arrays;
  for (const ArrayOf& array : ArraysOf(segment)) {
    arrays.push_back({Bytes(array.data), array.element_bytes, true, false});
  }
  OnHost(stream, arrays, segment.count, [add, segment](const ArraySlice& piece) {
    add(WithArrays(PartOf(segment, piece.begin, piece.count), std::span(piece.places)));
  });
}

// CUDA kernels and the host add to the same numbers in page-locked memory, in stream order, because
// a tensor may lie on both sides. The sums of blocks (16 bytes per 1024 elements, or per row of
// fewer) and of chunks of columns are in page-locked memory too. No other data of a segment leaves
// the arena.
Status CudaOps::AddSums(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                        std::span<const Segment> segments, std::span<double> sums) {
  const kernels::ShardedStep& step = *of->step;
  uint64_t workspace_bytes = 0;
  for (const Segment& segment : segments) {
    workspace_bytes =
        std::max<uint64_t>(workspace_bytes, kernels::SumsWorkspaceBytes(step, segment));
  }
  absl::StatusOr<std::byte*> block =
      memory_.context->TakeStaging(sums.size_bytes() + workspace_bytes);
  memory_.context->Fail(block.status());
  if (!block.ok()) return Status::kCallbackFailed;
  auto* const added = reinterpret_cast<double*>(*block);
  std::ranges::copy(sums, added);
  Status status = Status::kOk;  // of the CUDA kernels
  of->fetched.resize(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!step.OptionsFor(segments[i]).has_value()) continue;
    Status queued = Status::kUnsupported;
    if (InArena(segments[i])) {
      queued = stream.Launch([&](CUstream queue) {
        return kernels::AddSumsCuda(step, pass, segments[i], of->device_scales, added + sums.size(),
                                    workspace_bytes, added, queue);
      });
    }
    if (queued == Status::kUnsupported) {
      AddSumsOnHost(stream, of, pass, segments[i], i, added);
    } else if (status == Status::kOk) {
      status = queued;
    }
  }
  stream.Synchronize();
  std::copy_n(added, sums.size(), sums.begin());
  memory_.context->ReturnStaging(*block);
  if (status == Status::kOk) status = of->host_status;
  // A lost device leaves no valid sums.
  return status == Status::kOk && !memory_.context->status().ok() ? Status::kCallbackFailed
                                                                  : status;
}

Segment CudaOps::Fetch(CudaStream& stream, const Segment& segment,
                       std::vector<std::vector<std::byte>>* storage) {
  std::vector<std::byte*> places;
  for (const ArrayOf& array : ArraysOf(segment)) {
    places.push_back(Bytes(array.data));
    if (!memory_.arena->Contains(array.data)) continue;
    storage->emplace_back(segment.count * array.element_bytes);
    places.back() = storage->back().data();
    stream.CopyAny(places.back(), array.data, storage->back().size());
  }
  return WithArrays(segment, places);
}

// By CUDA kernels if the factors and all trained values are in the arena. Otherwise by the host,
// which then steps its own segments with the same scales.
Status CudaOps::MakeFactors(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                            std::span<const double> sums) {
  const uint64_t bytes = of->step->FactorTotal() * sizeof(float);
  const bool first = pass == kernels::SumPass::kFirst;
  if (of->made_there) {
    const Status made = MakeFactorsThere(stream, of, pass, sums);
    if (made != Status::kUnsupported || !first) return made;
    of->made_there = false;
  }
  if (first) {
    of->old_here.resize(of->step->FactorTotal());
    stream.CopyAny(Bytes(of->old_here.data()), Bytes(of->old_factors), bytes);
    stream.Synchronize();
    of->new_here = of->old_here;  // tensors frozen for this step keep their factors
  }
  const Status status = of->step->MakeFactors(pass, sums, of->old_here.data(), of->new_here.data());
  if (status != Status::kOk) return status;
  stream.CopyAny(Bytes(of->new_factors), Bytes(of->new_here.data()), bytes);
  if (of->device_scales != nullptr) {
    stream.CopyAny(Bytes(of->device_scales), Bytes(of->step->Scales().data()), bytes);
  }
  stream.Synchronize();
  return Status::kOk;
}

// The device reads the sums, 8 bytes per row and column, from host memory.
Status CudaOps::MakeFactorsThere(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                                 std::span<const double> sums) {
  const uint64_t means_bytes = of->step->tensors() * sizeof(double);
  absl::StatusOr<std::byte*> block = memory_.context->TakeStaging(sums.size_bytes() + means_bytes);
  memory_.context->Fail(block.status());
  if (!block.ok()) return Status::kCallbackFailed;
  auto* const there = reinterpret_cast<double*>(*block);
  std::ranges::copy(sums, there);
  if (pass == kernels::SumPass::kFirst && of->old_factors != of->new_factors) {
    stream.CopyAny(Bytes(of->new_factors), Bytes(of->old_factors),
                   of->step->FactorTotal() * sizeof(float));
  }
  const Status status = stream.Launch([&](CUstream queue) {
    return kernels::MakeFactorsCuda(*of->step, pass, there, of->old_factors, of->new_factors,
                                    of->device_scales, there + sums.size(), queue);
  });
  stream.CallBack([this, block = *block] { memory_.context->ReturnStaging(block); });
  return status;
}

Status CudaOps::Prepare(Stream& stream, kernels::ShardedStep* step,
                        const kernels::StepScalars& scalars, std::span<const Segment> segments,
                        const float* old_factors, const kernels::ReduceSum& reduce,
                        float* new_factors, float* device_scales) {
  CudaStream& own = Own(stream);
  StepSums of = {.step = step,
                 .old_factors = old_factors,
                 .new_factors = new_factors,
                 .device_scales = device_scales};
  kernels::StepElsewhere elsewhere;
  elsewhere.add_sums = [&](kernels::SumPass pass, std::span<const Segment> all,
                           std::span<double> sums) { return AddSums(own, &of, pass, all, sums); };
  if (step->FactorTotal() > 0) {
    if (old_factors == nullptr || new_factors == nullptr) return Status::kNullPointer;
    of.made_there = device_scales != nullptr && memory_.arena->Contains(old_factors) &&
                    memory_.arena->Contains(new_factors) &&
                    std::ranges::all_of(segments, [&](const Segment& segment) {
                      return !step->OptionsFor(segment).has_value() || InArena(segment);
                    });
    elsewhere.make_factors = [&](kernels::SumPass pass, std::span<const double> sums) {
      return MakeFactors(own, &of, pass, sums);
    };
  }
  const Status status =
      step->Prepare(scalars, segments, old_factors, reduce, new_factors, elsewhere);
  if (status == Status::kOk) step->SetDeviceScales(device_scales);
  own.Synchronize();
  return status;
}

}  // namespace geminid::device
