#include "client/device/cuda/cuda_ops.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/numeric/accumulate/accumulate_cuda.h"
#include "kernels/numeric/cast/cast_cuda.h"
#include "kernels/numeric/norm/norm.h"
#include "kernels/numeric/norm/norm_cuda.h"
#include "kernels/numeric/split_master/split_master_cuda.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::device {
namespace {

using collectives::DType;
using collectives::SizeOf;
using kernels::BFloat16;
using kernels::Status;

// The size of a piece on the host. It is large relative to a copy's latency, a multiple of the
// norms' trees, and small enough that a few such arrays fit beside other data.
constexpr uint64_t kPieceElements = 1 << 20;
static_assert(kPieceElements % kernels::kNormTree == 0);
static_assert(kPieceElements % kernels::kNormsTree == 0);

CUdeviceptr Address(const void* place) { return reinterpret_cast<uintptr_t>(place); }

template <typename T>
std::byte* Bytes(const T* place) {
  return reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(place));
}

template <typename T>
const T* As(const Elements& elements) {
  return reinterpret_cast<const T*>(elements.data);
}

// CUDA kernels need aligned elements.
bool IsAligned(const Elements& elements) {
  return Address(elements.data) % SizeOf(elements.type) == 0;
}

CudaStream& Own(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace

// --- by the driver -------------------------------------------------------------------------------

void CudaOps::Zero(Stream& stream, std::byte* to, uint64_t bytes) {
  if (!memory_.IsOnDevice(to)) {
    stream.Enqueue([=] { std::fill_n(to, bytes, std::byte{0}); });
    return;
  }
  Own(stream).Queue("cuMemsetD8Async", [=](const gpu::DriverApi& api, CUstream queue) {
    return api.memset_d8_async(Address(to), 0, bytes, queue);
  });
}

void CudaOps::Copy(Stream& stream, std::byte* to, const std::byte* from, uint64_t bytes) {
  Own(stream).CopyAny(to, from, bytes);
}

absl::Status CudaOps::Synchronize(Stream& stream, absl::Duration timeout) {
  if (!stream.Record()->WaitFor(timeout)) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the GPU did not finish its queued work within ", absl::FormatDuration(timeout),
        "; see whether the GPU still answers (nvidia-smi)"));
  }
  return status();
}

// --- by kernels for the GPU ----------------------------------------------------------------------

bool CudaOps::ByKernel(CudaStream& stream, const char* name,
                       std::initializer_list<const void*> operands,
                       const std::function<Status(CUstream)>& launch) {
  for (const void* operand : operands) {
    if (operand != nullptr && !memory_.IsOnDevice(operand)) return false;
  }
  const Status status = stream.Launch(launch);
  if (status == Status::kUnsupported) return false;
  memory_.context->Fail(kernels::FromKernel(status, name));
  return true;
}

// Forms the sum, and the blocks' sums that it consists of, in page-locked memory: 8 bytes per 16
// KiB that are read.
bool CudaOps::SumSquaresByKernel(CudaStream& stream, const Elements& values, double* sum) {
  const uint64_t workspace_bytes = kernels::SquareSumWorkspaceBytes(values.count);
  absl::StatusOr<std::byte*> block = memory_.context->TakeStaging(sizeof(double) + workspace_bytes);
  if (!block.ok()) return false;
  auto* const total = reinterpret_cast<double*>(*block);
  *total = 0;
  const bool queued = ByKernel(stream, "AddSquares", {values.data}, [&](CUstream queue) {
    return values.type == DType::kBFloat16
               ? kernels::AddSquaresCuda(As<BFloat16>(values), values.count, total + 1,
                                         workspace_bytes, total, queue)
               : kernels::AddSquaresCuda(As<float>(values), values.count, total + 1,
                                         workspace_bytes, total, queue);
  });
  if (!queued) {
    memory_.context->ReturnStaging(*block);
    return false;
  }
  stream.CallBack([this, total, sum, block = *block] {
    *sum = *total;
    memory_.context->ReturnStaging(block);
  });
  return true;
}

// --- by the host ---------------------------------------------------------------------------------

absl::Status CudaOps::TakeBlocks(const std::vector<Array>& arrays, uint64_t count,
                                 std::vector<std::byte*>* blocks) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    blocks->push_back(nullptr);
    if (!memory_.IsOnDevice(arrays[i].data)) continue;
    // An array that is read and written in place must be one array on the host as well.
    const auto same = std::find_if(arrays.begin(), arrays.begin() + static_cast<ptrdiff_t>(i),
                                   [&](const Array& a) { return a.data == arrays[i].data; });
    if (same != arrays.begin() + static_cast<ptrdiff_t>(i)) {
      blocks->back() = (*blocks)[static_cast<size_t>(same - arrays.begin())];
      continue;
    }
    absl::StatusOr<std::byte*> block =
        memory_.context->TakeStaging(std::min(count, kPieceElements) * arrays[i].element_bytes);
    if (!block.ok()) return block.status();
    blocks->back() = *block;
  }
  return absl::OkStatus();
}

void CudaOps::RunPiece(CudaStream& stream, const std::vector<Array>& arrays,
                       const std::vector<std::byte*>& blocks, ArraySlice piece,
                       const HostKernel& kernel) {
  const auto there = [&](size_t i) {
    return Address(arrays[i].data + piece.begin * arrays[i].element_bytes);
  };
  const auto bytes = [&](size_t i) { return piece.count * arrays[i].element_bytes; };
  for (size_t i = 0; i < arrays.size(); ++i) {
    const bool staged = blocks[i] != nullptr;
    const bool there_is = arrays[i].data != nullptr;
    piece.places.push_back(staged     ? blocks[i]
                           : there_is ? arrays[i].data + piece.begin * arrays[i].element_bytes
                                      : nullptr);
    if (!staged || !arrays[i].reads) continue;
    stream.Queue("cuMemcpyDtoHAsync", [&](const gpu::DriverApi& api, CUstream queue) {
      return api.memcpy_dtoh_async(blocks[i], there(i), bytes(i), queue);
    });
  }
  stream.Enqueue([this, kernel, piece] {
    kernel(piece);
    memory_.context->Fail(host_.status());
  });
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (blocks[i] == nullptr || !arrays[i].writes) continue;
    stream.Queue("cuMemcpyHtoDAsync", [&](const gpu::DriverApi& api, CUstream queue) {
      return api.memcpy_htod_async(there(i), blocks[i], bytes(i), queue);
    });
  }
}

void CudaOps::OnHost(CudaStream& stream, const std::vector<Array>& arrays, uint64_t count,
                     const HostKernel& kernel) {
  std::vector<std::byte*> blocks;
  const absl::Status taken = TakeBlocks(arrays, count, &blocks);
  if (taken.ok()) {
    for (uint64_t begin = 0; begin < count; begin += kPieceElements) {
      RunPiece(stream, arrays, blocks, {{}, begin, std::min(kPieceElements, count - begin)},
               kernel);
    }
  }
  memory_.context->Fail(taken);
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  stream.CallBack([this, blocks = std::move(blocks)] {
    for (std::byte* block : blocks) {
      if (block != nullptr) memory_.context->ReturnStaging(block);
    }
  });
}

void CudaOps::Assign(Stream& stream, const Elements& from, std::byte* to, DType type) {
  if (from.type == type) {
    Copy(stream, to, from.data, from.bytes());
    return;
  }
  const bool queued =
      IsAligned(from) && ByKernel(Own(stream), "Cast", {from.data, to}, [&](CUstream queue) {
        return type == DType::kFloat32
                   ? kernels::CastToFloatCuda(As<BFloat16>(from), from.count,
                                              reinterpret_cast<float*>(to), queue)
                   : kernels::CastToBFloat16Cuda(As<float>(from), from.count,
                                                 reinterpret_cast<BFloat16*>(to), queue);
      });
  if (queued) return;
  OnHost(Own(stream),
         {{Bytes(from.data), SizeOf(from.type), true, false}, {to, SizeOf(type), false, true}},
         from.count, [this, source = from.type, type](const ArraySlice& piece) {
           host_.Assign(inline_, {piece.places[0], piece.count, source}, piece.places[1], type);
         });
}

void CudaOps::Add(Stream& stream, const Elements& from, std::byte* to, DType type) {
  const bool queued =
      IsAligned(from) && ByKernel(Own(stream), "Add", {from.data, to}, [&](CUstream queue) {
        const auto add = [&](auto* sum) {
          return from.type == DType::kFloat32
                     ? kernels::AddCuda(As<float>(from), from.count, sum, queue)
                     : kernels::AddCuda(As<BFloat16>(from), from.count, sum, queue);
        };
        return type == DType::kFloat32 ? add(reinterpret_cast<float*>(to))
                                       : add(reinterpret_cast<BFloat16*>(to));
      });
  if (queued) return;
  OnHost(Own(stream),
         {{Bytes(from.data), SizeOf(from.type), true, false}, {to, SizeOf(type), true, true}},
         from.count, [this, source = from.type, type](const ArraySlice& piece) {
           host_.Add(inline_, {piece.places[0], piece.count, source}, piece.places[1], type);
         });
}

void CudaOps::Accumulate(Stream& stream, const Elements& from, float scale, float* sum) {
  const bool queued =
      IsAligned(from) && ByKernel(Own(stream), "Accumulate", {from.data, sum}, [&](CUstream queue) {
        return from.type == DType::kFloat32
                   ? kernels::AccumulateCuda(As<float>(from), scale, from.count, sum, queue)
                   : kernels::AccumulateCuda(As<BFloat16>(from), scale, from.count, sum, queue);
      });
  if (queued) return;
  OnHost(
      Own(stream),
      {{Bytes(from.data), SizeOf(from.type), true, false}, {Bytes(sum), sizeof(float), true, true}},
      from.count, [this, source = from.type, scale](const ArraySlice& piece) {
        host_.Accumulate(inline_, {piece.places[0], piece.count, source}, scale,
                         piece.As<float>(1));
      });
}

void CudaOps::SumSquares(Stream& stream, const Elements& values, double* sum) {
  if (IsAligned(values) && SumSquaresByKernel(Own(stream), values, sum)) return;
  const auto total = std::make_shared<kernels::SquareSum>();
  OnHost(Own(stream), {{Bytes(values.data), SizeOf(values.type), true, false}}, values.count,
         [this, total, type = values.type](const ArraySlice& piece) {
           const Status status =
               type == DType::kBFloat16
                   ? kernels::AddSquares(piece.As<const BFloat16>(0), piece.count, total.get())
                   : kernels::AddSquares(piece.As<const float>(0), piece.count, total.get());
           memory_.context->Fail(kernels::FromKernel(status, "AddSquares"));
         });
  stream.CallBack([total, sum] { *sum = total->sum; });
}

void CudaOps::JoinMaster(Stream& stream, const BFloat16* weight, const int16_t* remainder,
                         uint64_t count, float* master) {
  const bool queued =
      ByKernel(Own(stream), "JoinMaster", {weight, remainder, master}, [&](CUstream queue) {
        return kernels::JoinMasterCuda(weight, remainder, count, master, queue);
      });
  if (queued) return;
  OnHost(Own(stream),
         {{Bytes(weight), sizeof(BFloat16), true, false},
          {Bytes(remainder), sizeof(int16_t), true, false},
          {Bytes(master), sizeof(float), false, true}},
         count, [this](const ArraySlice& piece) {
           host_.JoinMaster(inline_, piece.As<const BFloat16>(0), piece.As<const int16_t>(1),
                            piece.count, piece.As<float>(2));
         });
}

void CudaOps::SplitMaster(Stream& stream, const float* master, uint64_t count, BFloat16* weight,
                          int16_t* remainder) {
  const bool queued =
      ByKernel(Own(stream), "SplitMaster", {master, weight, remainder}, [&](CUstream queue) {
        return kernels::SplitMasterCuda(master, count, weight, remainder, queue);
      });
  if (queued) return;
  OnHost(Own(stream),
         {{Bytes(master), sizeof(float), true, false},
          {Bytes(weight), sizeof(BFloat16), false, true},
          {Bytes(remainder), sizeof(int16_t), false, true}},
         count, [this](const ArraySlice& piece) {
           host_.SplitMaster(inline_, piece.As<const float>(0), piece.count, piece.As<BFloat16>(1),
                             piece.As<int16_t>(2));
         });
}

}  // namespace geminid::device
