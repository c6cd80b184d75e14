// Elements of every type from numbers, and back, by means independent of the code under test.
#ifndef GEMINID_TESTS_COLLECTIVES_ELEMENTS_H_
#define GEMINID_TESTS_COLLECTIVES_ELEMENTS_H_

#include <cstdint>
#include <vector>

#include "geminid/buffer.h"

namespace geminid::collectives {

// The value of 16 bits of a format with `exponent_bits`, from its definition.
double DecodeHalf(uint16_t bits, int exponent_bits);
// The nearest of all 65536 values, by search, with ties to the even pattern. Infinity if `value` is
// more than half a unit beyond the largest. `value` is not NaN.
uint16_t EncodeHalf(double value, int exponent_bits);

inline constexpr int kFloat16ExponentBits = 5;
inline constexpr int kBFloat16ExponentBits = 8;

// `count` elements as bytes. The values are small integers and halves that every type represents
// exactly after truncation, and differ for every rank and index.
std::vector<std::byte> Pattern(DType dtype, size_t count, int rank);
// Random finite elements of moderate size, whose sums round.
std::vector<std::byte> RandomElements(DType dtype, size_t count, uint64_t seed);

// out[i] = round(scale * (in[0][i] op ...)) one element at a time.
std::vector<std::byte> ReduceOneByOne(const std::vector<std::vector<std::byte>>& inputs,
                                      DType dtype, ReduceOp op, double scale);

double ValueOf(const std::vector<std::byte>& elements, size_t index, DType dtype);

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_ELEMENTS_H_
