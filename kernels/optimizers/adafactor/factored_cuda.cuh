// The code that Adafactor and CAME share on a GPU. Device code; included by *_cuda.cu files alone.
#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORED_CUDA_CUH_
#define GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORED_CUDA_CUH_

#include "kernels/optimizers/adafactor/adafactor_rule.h"
#include "kernels/optimizers/adafactor/factor_passes.h"
#include "kernels/optimizers/step/measure.cuh"

namespace geminid::kernels::cuda {

// The rows and columns of elements, and their scales.
struct ScaleLookup {
  const float* rows;  // null if the tensor is no matrix: the scale of its rows is 1
  const float* columns;
  uint64_t offset;  // of the part within the tensor
  uint64_t width;

  ScaleLookup(const FactorShape& shape, uint64_t part_offset, const float* scales)
      : rows(shape.Factored() ? scales : nullptr),
        columns(scales + shape.Rows()),
        offset(part_offset),
        width(shape.Columns()) {}

  struct Place {
    uint64_t row;
    uint64_t column;
  };
  __device__ Place PlaceOf(size_t at) const {
    const uint64_t position = offset + at;
    if ((position | width) >> 32 == 0) {  // a fifth of the time of a 64-bit division
      const auto row = static_cast<uint32_t>(position) / static_cast<uint32_t>(width);
      return {row, static_cast<uint32_t>(position) - row * static_cast<uint32_t>(width)};
    }
    return {position / width, position % width};
  }
  __device__ float RowScale(const Place& place) const {
    return rows == nullptr ? 1.0F : rows[place.row];
  }
};

// A rule whose member k is AdafactorCoefficients, with the scales of one pair of factors.
template <class Rule>
struct FactoredRule {
  static constexpr int kStates = Rule::kStates;

  __device__ void operator()(size_t at, Element<float>& e) const {
    const ScaleLookup::Place place = scales.PlaceOf(at);
    Rule its_rule = rule;
    its_rule.k.row_scale = scales.RowScale(place);
    e.factor[0] = scales.columns[place.column];
    its_rule(e);
  }

  Rule rule;
  ScaleLookup scales;
};

// The same for FactoredUpdateRule, whose row scale is a member of its own.
struct UnclippedRule {
  static constexpr int kStates = 0;

  __device__ void operator()(size_t at, Element<float>& e) const {
    const ScaleLookup::Place place = scales.PlaceOf(at);
    e.factor[0] = scales.columns[place.column];
    FactoredUpdateRule{grad_scale, scales.RowScale(place)}(e);
  }

  float grad_scale;
  ScaleLookup scales;
};

// The places in the tensor's `sums` to which a part's squares are added.
inline SumTargets TargetsOf(const FactorShape& shape, double* sums) {
  return {.rows = shape.Factored() ? sums : nullptr, .columns = sums + shape.Rows()};
}

// Adds the squares of the update before clipping, as AdafactorAddUpdateSquaresCuda.
Status MeasureUpdate(float grad_scale, const FactorShape& shape, uint64_t offset,
                     const float* scales, const GradientArray& gradient, size_t count,
                     double* workspace, size_t workspace_bytes, double* update_squares,
                     CudaStream stream);

// Steps a tensor, already checked, whose update uses a momentum.
Status UpdateWithMomentum(const AdafactorCoefficients& k, const ScaleLookup& scales,
                          const CudaTensor& tensor, CudaStream stream);

}  // namespace geminid::kernels::cuda

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_FACTORED_CUDA_CUH_
