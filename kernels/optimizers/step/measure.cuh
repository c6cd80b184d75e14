// Sums of squares of a rule's results, and of the weights, on a GPU, in the order of
// additions, and so with the bits, of MeasureElements
// (kernels/optimizers/step/elementwise.h).
//
// Sixteen threads, one per lane, sum a block of kSumBlock elements at the speed of memory. Warps
// fold trees of kTreeBlocks blocks. Then one thread per sum adds its trees in order, some 5 ns
// each. Columns are summed in chunks of rows (kernels/optimizers/step/column_chunks.h). Device
// code; included by the *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_MEASURE_CUH_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_MEASURE_CUH_

#include <cstdint>

#include "kernels/numeric/norm/squares.cuh"
#include "kernels/optimizers/step/column_chunks.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/update.cuh"
#include "kernels/runtime/common/buffers.h"

namespace geminid::kernels::cuda {

inline constexpr unsigned kSumLanes = 16;

// Part of a tensor as rows; each row's piece is divided into blocks by itself. All rows have as
// many blocks; those beyond a piece are empty and add zero. A tensor that is no matrix is one row.
struct RowBlocks {
  uint64_t offset;  // of the part within the tensor
  uint64_t count;
  uint64_t width;
  uint64_t first_row;
  uint64_t rows;
  uint64_t blocks_per_row;

  RowBlocks(uint64_t row_width, uint64_t part_offset, uint64_t part_count)
      : offset(part_offset),
        count(part_count),
        width(row_width),
        first_row(part_offset / width),
        rows((part_offset + part_count - 1) / width - first_row + 1),
        blocks_per_row((width + kSumBlock - 1) / kSumBlock) {}

  __host__ __device__ uint64_t blocks() const { return rows * blocks_per_row; }

  // The elements of a block, counted from the start of the part.
  struct Range {
    uint64_t begin;
    uint64_t end;
  };
  __device__ Range Elements(uint64_t block) const {
    const uint64_t row = first_row + block / blocks_per_row;
    const uint64_t row_begin = row * width > offset ? row * width : offset;
    const uint64_t part_end = offset + count;
    const uint64_t row_end = (row + 1) * width < part_end ? (row + 1) * width : part_end;
    const uint64_t begin = row_begin + block % blocks_per_row * kSumBlock;
    const uint64_t end = begin + kSumBlock < row_end ? begin + kSumBlock : row_end;
    return {begin - offset, begin < end ? end - offset : begin - offset};
  }
};

// The sums of one block.
struct BlockSums {
  double result;
  double weight;
};

// Bytes for the sums of blocks and, later in the same place, of the chunks of columns.
inline size_t MeasureWorkspaceBytes(const RowBlocks& blocks) {
  const size_t block_bytes = blocks.blocks() * sizeof(BlockSums);
  const size_t column_bytes =
      blocks.rows == 1 ? 0 : ColumnChunks(blocks.rows).chunks * blocks.width * sizeof(double);
  return block_bytes < column_bytes ? column_bytes : block_bytes;
}

// Where the sums are added to, on the device; null: nowhere.
struct SumTargets {
  double* result = nullptr;   // all blocks
  double* weight = nullptr;   // all blocks
  double* rows = nullptr;     // by row of the tensor
  double* columns = nullptr;  // by column
};

__device__ inline float LoadMasterElement(const SplitWeight& from, size_t at) {
  return std::bit_cast<float>(JoinMasterBits({from.old_weight[at], from.old_remainder[at]}));
}
// 0 if there are no weights.
__device__ inline float LoadMasterElement(const MasterWeight& from, size_t at) {
  return from.old_weight == nullptr ? 0.0F : from.old_weight[at];
}

// The rule's result for one element; *weight receives the weight that was read.
template <class Rule, class Weight, typename Gradient>
__device__ float ResultOf(const Tensor<Rule, Weight, Gradient>& tensor, size_t at, float* weight) {
  Element<float> e = {};
  e.gradient = Widen(tensor.gradient[at]);
  e.weight = LoadMasterElement(tensor.weight, at);
  *weight = e.weight;
#pragma unroll
  for (int s = 0; s < Rule::kStates; ++s) e.state[s] = LoadStateElement(tensor, s, at);
  tensor.rule(at, e);
  return e.weight;
}

// The sum of the sixteen lanes' values, in lane 0.
__device__ inline double FoldLanes(double value) {
#pragma unroll
  for (unsigned half = kSumLanes / 2; half != 0; half /= 2) {
    value += __shfl_down_sync(0xFFFFFFFFu, value, half, kSumLanes);
  }
  return value;
}

template <class Rule, class Weight, typename Gradient>
struct MeasureBlocks {
  static constexpr unsigned kThreads = cuda::kThreads;
  static constexpr unsigned kBlocksPerGroup = kThreads / kSumLanes;

  __device__ void Run() const {
    const uint64_t block =
        static_cast<uint64_t>(blockIdx.x) * kBlocksPerGroup + threadIdx.x / kSumLanes;
    const bool mine = block < blocks.blocks();
    const RowBlocks::Range range = mine ? blocks.Elements(block) : RowBlocks::Range{0, 0};
    double result = 0;
    double weight = 0;
#pragma unroll 4
    for (uint64_t at = range.begin + threadIdx.x % kSumLanes; at < range.end; at += kSumLanes) {
      float weight_read;
      result = AddSquare(result, ResultOf(tensor, at, &weight_read));
      weight = AddSquare(weight, weight_read);
    }
    result = FoldLanes(result);
    weight = FoldLanes(weight);
    if (mine && threadIdx.x % kSumLanes == 0) sums[block] = {result, weight};
  }

  Tensor<Rule, Weight, Gradient> tensor;
  RowBlocks blocks;
  BlockSums* sums;
};

// The size of a tile: many threads load it, and one thread per column adds its rows in order.
inline constexpr unsigned kTileColumns = 32;
inline constexpr unsigned kTileRows = 64;

// A block adds the rows of one chunk.
template <class Rule, class Weight, typename Gradient>
struct MeasureColumns {
  static constexpr unsigned kThreads = cuda::kThreads;
  static constexpr unsigned kMinBlocks = 1;  // the compiler's own choice spills on sm_80

  __device__ float At(uint64_t row, uint64_t column) const {
    const uint64_t position = (blocks.first_row + row) * blocks.width + column;
    const bool inside = column < blocks.width && position >= blocks.offset &&
                        position < blocks.offset + blocks.count;
    float unused;
    return inside ? ResultOf(tensor, position - blocks.offset, &unused) : 0.0F;
  }

  __device__ void Run() const {
    __shared__ float tile[kTileRows][kTileColumns];
    const unsigned lane = threadIdx.x % kTileColumns;
    const uint64_t column = static_cast<uint64_t>(blockIdx.x % column_blocks) * kTileColumns + lane;
    const uint64_t chunk = blockIdx.x / column_blocks;
    const uint64_t rows_end = (chunk + 1) * cut.rows_per_chunk;
    const uint64_t end = rows_end < blocks.rows ? rows_end : blocks.rows;
    const bool adds = threadIdx.x < kTileColumns && column < blocks.width;
    double sum = 0;
    for (uint64_t begin = chunk * cut.rows_per_chunk; begin < end; begin += kTileRows) {
      for (unsigned r = threadIdx.x / kTileColumns; r < kTileRows; r += kThreads / kTileColumns) {
        tile[r][lane] = begin + r < end ? At(begin + r, column) : 0.0F;
      }
      __syncthreads();
      if (adds) {
#pragma unroll 16
        for (unsigned r = 0; r < kTileRows; ++r) sum = AddSquare(sum, tile[r][lane]);
      }
      __syncthreads();
    }
    if (adds) partial[chunk * blocks.width + column] = sum;
  }

  Tensor<Rule, Weight, Gradient> tensor;
  RowBlocks blocks;
  ColumnChunks cut;
  unsigned column_blocks;
  double* partial;  // [chunks][width]
};

// The same for one row, whose columns have one square each.
template <class Rule, class Weight, typename Gradient>
struct MeasureRow {
  static constexpr unsigned kThreads = cuda::kThreads;

  __device__ void Run() const {
    const uint64_t at = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (at >= tensor.count) return;
    float unused;
    columns[at] = AddSquare(columns[at], ResultOf(tensor, at, &unused));
  }

  Tensor<Rule, Weight, Gradient> tensor;
  double* columns;
};

// Names the kernels that measure a rule: those of its blocks, and separately of its columns.
#define GEMINID_MEASURE_KERNELS_OF(what, name, Kernel, Rule)                                 \
  GEMINID_KERNEL(geminid_##name##_##what##_fp32_fp32, Kernel<Rule, MasterWeight, float>);    \
  GEMINID_KERNEL(geminid_##name##_##what##_fp32_bf16, Kernel<Rule, MasterWeight, BFloat16>); \
  GEMINID_KERNEL(geminid_##name##_##what##_split_fp32, Kernel<Rule, SplitWeight, float>);    \
  GEMINID_KERNEL(geminid_##name##_##what##_split_bf16, Kernel<Rule, SplitWeight, BFloat16>)
#define GEMINID_MEASURE_KERNELS(name, ...) \
  using name##_measured = __VA_ARGS__;     \
  GEMINID_MEASURE_KERNELS_OF(blocks, name, MeasureBlocks, name##_measured)
#define GEMINID_MEASURE_COLUMN_KERNELS(name)                                  \
  GEMINID_MEASURE_KERNELS_OF(columns, name, MeasureColumns, name##_measured); \
  GEMINID_MEASURE_KERNELS_OF(row, name, MeasureRow, name##_measured)

// Queues the additions of block sums, which are overwritten.
Status AddBlocks(BlockSums* sums, const RowBlocks& blocks, const SumTargets& targets,
                 CudaStream stream);

// Queues the addition of the chunks of every column to its sum.
Status AddColumnChunks(const double* partial, const ColumnChunks& cut, uint64_t width,
                       double* columns, CudaStream stream);

// The input of Measure; the arrays have been checked. Weights may all be null.
struct Measured {
  ConstParameterArrays arrays;
  GradientArray gradient;
  RowBlocks blocks;
};

enum class Columns { kNone, kMaybe };  // kNone: no kernels for them, targets.columns is null

template <Columns kColumns, class Weight, typename Gradient, class Rule>
Status LaunchMeasure(const Rule& rule, const Measured& what, double* workspace,
                     const SumTargets& targets, CudaStream stream) {
  const RowBlocks& blocks = what.blocks;
  const Tensor<Rule, Weight, Gradient> one(rule, {what.arrays, what.gradient, blocks.count, {}});
  Status status = Status::kOk;
  if (targets.result != nullptr || targets.weight != nullptr || targets.rows != nullptr) {
    using Kernel = MeasureBlocks<Rule, Weight, Gradient>;
    auto* sums = reinterpret_cast<BlockSums*>(workspace);
    status = LaunchKernel(Kernel{one, blocks, sums},
                          BlocksFor(blocks.blocks(), Kernel::kBlocksPerGroup), stream);
    if (status == Status::kOk) status = AddBlocks(sums, blocks, targets, stream);
  }
  if constexpr (kColumns == Columns::kMaybe) {
    if (status != Status::kOk || targets.columns == nullptr) return status;
    if (blocks.rows == 1) {
      double* const columns = targets.columns + blocks.offset % blocks.width;
      return LaunchKernel(MeasureRow<Rule, Weight, Gradient>{one, columns},
                          BlocksFor(blocks.count, kThreads), stream);
    }
    const ColumnChunks cut(blocks.rows);
    const size_t column_blocks = BlocksFor(blocks.width, kTileColumns);
    status = LaunchKernel(
        MeasureColumns<Rule, Weight, Gradient>{one, blocks, cut,
                                               static_cast<unsigned>(column_blocks), workspace},
        column_blocks * cut.chunks, stream);
    if (status != Status::kOk) return status;
    return AddColumnChunks(workspace, cut, blocks.width, targets.columns, stream);
  }
  return status;
}

template <Columns kColumns, class Weight, class Rule>
Status MeasureWithWeight(const Rule& rule, const Measured& what, double* workspace,
                         const SumTargets& targets, CudaStream stream) {
  switch (what.gradient.type) {
    case GradientType::kFloat:
      return LaunchMeasure<kColumns, Weight, float>(rule, what, workspace, targets, stream);
    case GradientType::kBFloat16:
      return LaunchMeasure<kColumns, Weight, BFloat16>(rule, what, workspace, targets, stream);
  }
  return Status::kInvalidShape;
}

// Adds the squares of rule(index, element) to the targets. `workspace`, of MeasureWorkspaceBytes on
// the device, is overwritten; kInvalidParameter if it is smaller.
template <Columns kColumns, class Rule>
Status Measure(const Rule& rule, const Measured& what, double* workspace, size_t workspace_bytes,
               const SumTargets& targets, CudaStream stream) {
  if (workspace_bytes < MeasureWorkspaceBytes(what.blocks)) return Status::kInvalidParameter;
  const Status status = CheckBuffer(Buffer::Of(workspace, workspace_bytes / sizeof(double)));
  if (status != Status::kOk) return status;
  if (what.arrays.form == WeightForm::kSplit) {
    return MeasureWithWeight<kColumns, SplitWeight>(rule, what, workspace, targets, stream);
  }
  return MeasureWithWeight<kColumns, MasterWeight>(rule, what, workspace, targets, stream);
}

// The same for ScaledGradientRule, which several optimizers measure.
Status MeasureScaledGradients(float grad_scale, const Measured& what, double* workspace,
                              size_t workspace_bytes, const SumTargets& targets, CudaStream stream);

constexpr size_t NormsWorkspaceBytes(size_t count) {
  return (count + kSumBlock - 1) / kSumBlock * sizeof(BlockSums);
}

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_MEASURE_CUH_
