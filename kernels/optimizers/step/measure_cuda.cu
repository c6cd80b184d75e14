#include <limits>

#include "kernels/numeric/norm/block_tree.cuh"
#include "kernels/optimizers/step/measure.cuh"

namespace geminid::kernels::cuda {

__device__ inline double WithQuietNaN(double sum) {
  return sum == sum ? sum : std::numeric_limits<double>::quiet_NaN();
}

// The trees of a row are added one after the other, rows one after the other.
struct Trees {
  uint64_t rows;
  uint64_t blocks_per_row;
  uint64_t trees_per_row;

  explicit Trees(const RowBlocks& blocks)
      : rows(blocks.rows),
        blocks_per_row(blocks.blocks_per_row),
        trees_per_row(BlocksFor(blocks.blocks_per_row, kTreeBlocks)) {}

  __host__ __device__ uint64_t count() const { return rows * trees_per_row; }
  // The first block of a tree, where its sum is left, and how many blocks it has.
  __device__ uint64_t Begin(uint64_t tree) const {
    return tree / trees_per_row * blocks_per_row + tree % trees_per_row * kTreeBlocks;
  }
  __device__ uint64_t Blocks(uint64_t tree) const {
    const uint64_t left = blocks_per_row - tree % trees_per_row * kTreeBlocks;
    return left < kTreeBlocks ? left : kTreeBlocks;
  }
};

// A warp folds a tree, in place.
struct FoldTrees {
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kTreesPerBlock = kThreads / kTreeWarp;

  __device__ void Run() const {
    const uint64_t tree =
        static_cast<uint64_t>(blockIdx.x) * kTreesPerBlock + threadIdx.x / kTreeWarp;
    const bool mine = tree < trees.count();
    BlockSums* const first = sums + (mine ? trees.Begin(tree) : 0);
    const uint64_t count = mine ? trees.Blocks(tree) : 0;
    const double result = FoldTree(count, [&](unsigned i) { return first[i].result; });
    const double weight = FoldTree(count, [&](unsigned i) { return first[i].weight; });
    if (mine && threadIdx.x % kTreeWarp == 0) *first = {result, weight};
  }

  BlockSums* sums;
  Trees trees;
};
GEMINID_KERNEL(geminid_measure_fold, FoldTrees);

// Adds the trees' sums to the targets.
struct AddTrees {
  static constexpr unsigned kThreads = 256;

  __device__ void Run() const {
    if (result != nullptr) {
      const double sum = AddInOrder<kThreads>(
          *result, trees.count(), [&](uint64_t tree) { return sums[trees.Begin(tree)].result; });
      if (threadIdx.x == 0) *result = WithQuietNaN(sum);
    }
    if (weight != nullptr) {
      const double sum = AddInOrder<kThreads>(
          *weight, trees.count(), [&](uint64_t tree) { return sums[trees.Begin(tree)].weight; });
      if (threadIdx.x == 0) *weight = WithQuietNaN(sum);
    }
  }

  const BlockSums* sums;
  Trees trees;
  double* result;
  double* weight;
};
GEMINID_KERNEL(geminid_measure_add_all, AddTrees);

// Adds the sums of each row's trees to the sum of that row.
struct AddRows {
  static constexpr unsigned kThreads = 256;

  __device__ void Run() const {
    const uint64_t row = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (row >= trees.rows) return;
    double sum = rows[row];
    for (uint64_t i = 0; i < trees.trees_per_row; ++i) {
      sum += sums[trees.Begin(row * trees.trees_per_row + i)].result;
    }
    rows[row] = WithQuietNaN(sum);
  }

  const BlockSums* sums;
  Trees trees;
  double* rows;  // of the part's first row
};
GEMINID_KERNEL(geminid_measure_add_rows, AddRows);

// A thread adds the chunks of a column.
struct AddChunksOfColumns {
  static constexpr unsigned kThreads = 64;  // so that few columns make many blocks

  __device__ void Run() const {
    const uint64_t column = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (column >= width) return;
    double sum = columns[column];
#pragma unroll 8
    for (uint64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * width + column];
    columns[column] = sum;
  }

  const double* partial;
  uint64_t chunks;
  uint64_t width;
  double* columns;
};
GEMINID_KERNEL(geminid_measure_add_column_chunks, AddChunksOfColumns);

GEMINID_MEASURE_KERNELS(gradient, PlainRule<ScaledGradientRule>);
GEMINID_MEASURE_COLUMN_KERNELS(gradient);

Status AddBlocks(BlockSums* sums, const RowBlocks& blocks, const SumTargets& targets,
                 CudaStream stream) {
  const Trees trees(blocks);
  Status status = LaunchKernel(FoldTrees{sums, trees},
                               BlocksFor(trees.count(), FoldTrees::kTreesPerBlock), stream);
  if (status == Status::kOk && targets.rows != nullptr) {
    status = LaunchKernel(AddRows{sums, trees, targets.rows + blocks.first_row},
                          BlocksFor(blocks.rows, AddRows::kThreads), stream);
  }
  if (status == Status::kOk && (targets.result != nullptr || targets.weight != nullptr)) {
    status = LaunchKernel(AddTrees{sums, trees, targets.result, targets.weight}, 1, stream);
  }
  return status;
}

Status AddColumnChunks(const double* partial, const ColumnChunks& cut, uint64_t width,
                       double* columns, CudaStream stream) {
  return LaunchKernel(AddChunksOfColumns{partial, cut.chunks, width, columns},
                      BlocksFor(width, AddChunksOfColumns::kThreads), stream);
}

Status MeasureScaledGradients(float grad_scale, const Measured& what, double* workspace,
                              size_t workspace_bytes, const SumTargets& targets,
                              CudaStream stream) {
  return Measure<Columns::kMaybe>(PlainRule<ScaledGradientRule>{{grad_scale}}, what, workspace,
                                  workspace_bytes, targets, stream);
}

}  // namespace geminid::kernels::cuda
