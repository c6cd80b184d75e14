// Operations on a GPU's memory, in the arena or allocated by the trainer's framework: by the driver
// or by CUDA kernels. Some operations have no kernel: in programs built without a CUDA compiler, on
// operands in host memory, and steps of Adafactor and CAME without memory for scales. For those the
// host's kernels run on copies in page-locked memory, piece by piece. Results are bit-identical,
// and take the speed of the link.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_CUDA_OPS_H_
#define GEMINID_CLIENT_DEVICE_CUDA_CUDA_OPS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "client/device/cuda/cuda_stream.h"
#include "client/device/device_ops.h"
#include "client/device/host/host_ops.h"
#include "client/device/host/inline_stream.h"

namespace geminid::device {

// Takes streams of its own device only.
class CudaOps final : public DeviceOps {
 public:
  explicit CudaOps(const CudaMemory& memory) : memory_(memory), host_(nullptr) {}

  void Zero(Stream& stream, std::byte* to, uint64_t bytes) override;
  void Copy(Stream& stream, std::byte* to, const std::byte* from, uint64_t bytes) override;
  void Assign(Stream& stream, const Elements& from, std::byte* to,
              collectives::DType type) override;
  void Add(Stream& stream, const Elements& from, std::byte* to, collectives::DType type) override;
  void Accumulate(Stream& stream, const Elements& from, float scale, float* sum) override;
  void SumSquares(Stream& stream, const Elements& values, double* sum) override;
  void JoinMaster(Stream& stream, const kernels::BFloat16* weight, const int16_t* remainder,
                  uint64_t count, float* master) override;
  void SplitMaster(Stream& stream, const float* master, uint64_t count, kernels::BFloat16* weight,
                   int16_t* remainder) override;
  void Apply(Stream& stream, const kernels::ShardedStep& step, const kernels::Segment& segment,
             const kernels::ParameterArrays& to, kernels::ThreadPool* threads) override;
  kernels::Status Prepare(Stream& stream, kernels::ShardedStep* step,
                          const kernels::StepScalars& scalars,
                          std::span<const kernels::Segment> segments, const float* old_factors,
                          const kernels::ReduceSum& reduce, float* new_factors,
                          float* device_scales) override;
  absl::Status status() const override { return memory_.context->status(); }
  absl::Status Synchronize(Stream& stream, absl::Duration timeout) override;

 private:
  // An array of elements, on the device or in host memory; `data` may be null.
  struct Array {
    std::byte* data = nullptr;
    uint64_t element_bytes = 0;
    bool reads = false;
    bool writes = false;
  };
  // Elements [begin, begin + count) of the arrays, at host addresses in the arrays' order.
  struct ArraySlice {
    std::vector<std::byte*> places;
    uint64_t begin = 0;
    uint64_t count = 0;

    template <typename T>
    T* As(size_t i) const {
      return reinterpret_cast<T*>(places[i]);
    }
  };
  using HostKernel = std::function<void(const ArraySlice&)>;

  // Whether `launch`, of the kernel `name`, has handled the operation: queued it, or found bad
  // operands. False: the host must do it, since an operand is in host memory or no kernel exists.
  bool ByKernel(CudaStream& stream, const char* name, std::initializer_list<const void*> operands,
                const std::function<kernels::Status(CUstream)>& launch);
  bool SumSquaresByKernel(CudaStream& stream, const Elements& values, double* sum);
  bool InArena(const kernels::Segment& segment) const;
  // Whether the step only copies the segment within the arena; if so, queues the copy.
  bool CopyThere(CudaStream& stream, const kernels::ShardedStep& step,
                 const kernels::Segment& segment, const kernels::ParameterArrays& to);
  bool ApplyByKernel(CudaStream& stream, const kernels::ShardedStep& step,
                     const kernels::Segment& segment, const kernels::ParameterArrays& to);

  // Runs `kernel` on the host for each piece of the arrays, in stream order.
  void OnHost(CudaStream& stream, const std::vector<Array>& arrays, uint64_t count,
              const HostKernel& kernel);
  void RunPiece(CudaStream& stream, const std::vector<Array>& arrays,
                const std::vector<std::byte*>& blocks, ArraySlice piece, const HostKernel& kernel);
  absl::Status TakeBlocks(const std::vector<Array>& arrays, uint64_t count,
                          std::vector<std::byte*>* blocks);
  // State that the passes of one Prepare share.
  struct StepSums {
    kernels::ShardedStep* step = nullptr;
    const float* old_factors = nullptr;
    float* new_factors = nullptr;
    float* device_scales = nullptr;
    bool made_there = false;  // kernels on the GPU compute the factors
    std::vector<float> old_here = {};
    std::vector<float> new_here = {};
    // Written by the stream's thread, so valid when the stream is idle:
    kernels::Status host_status = kernels::Status::kOk;
    // Segments whose sums the host computes as a whole; copied once for all passes.
    std::vector<std::optional<kernels::Segment>> fetched = {};
    std::vector<std::vector<std::byte>> storage = {};
  };
  // ShardedStep::AddSums of all segments, by CUDA kernels for those in the arena. The stream is
  // idle when it returns.
  kernels::Status AddSums(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                          std::span<const kernels::Segment> segments, std::span<double> sums);
  void AddSumsOnHost(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                     const kernels::Segment& segment, size_t index, double* sums);
  // ShardedStep::MakeFactors for factors in any memory, and the scales for kernels.
  kernels::Status MakeFactors(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                              std::span<const double> sums);
  kernels::Status MakeFactorsThere(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                                   std::span<const double> sums);
  // Queues copies of the segment's arrays in the arena to `storage`, which must be kept.
  kernels::Segment Fetch(CudaStream& stream, const kernels::Segment& segment,
                         std::vector<std::vector<std::byte>>* storage);

  const CudaMemory memory_;
  HostOps host_;
  InlineStream inline_;
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_CUDA_OPS_H_
