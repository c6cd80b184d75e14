#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_STAGING_H_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_STAGING_H_

#include <cstddef>

#include "kernels/optimizers/step/parameter_arrays.h"

// Converts one block of parameters between the stored forms and fp32 in the cache. Internal to this
// folder: nothing is checked.
namespace geminid::kernels {

// Returns `count` gradients as fp32: in `space`, or in place if they are fp32.
const float* StageGradient(const GradientArray& gradient, size_t count, float* space);

// Returns `count` masters: in `space` if the form is kSplit, else in place.
const float* StageWeights(const ConstParameterArrays& arrays, size_t count, float* space);

// Returns `count` elements of a state array: in `space` if the form is kBFloat16, else in place.
const float* StageState(const ConstParameterArrays& arrays, int index, size_t count, float* space);

// Rounds `states` arrays of `count` elements, which lie in the cache, into arrays of kBFloat16
// form. With `stream` these are aligned to 64 bytes and stored past the cache.
void StoreStates(const float* const* values, int states, size_t count, bool stream,
                 const ParameterArrays& arrays);

// Stores masters that lie in the cache in form kSplit; with `stream`, both arrays are aligned to 64
// bytes and stored past the cache.
void StoreWeights(const float* masters, size_t count, bool stream, const ParameterArrays& arrays);

// The sum of squares of at most kSumBlock values: 16 lanes, folded as in kernels/numeric/norm.
double BlockSquares(const float* values, size_t count);
// columns[i] += values[i]^2.
void AddColumnSquares(const float* values, size_t count, double* columns);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_STAGING_H_
