// Puts numbers in a random order without a table: each value of the order is computed by itself.
#ifndef GEMINID_TRAINING_DATA_PERMUTATION_H_
#define GEMINID_TRAINING_DATA_PERMUTATION_H_

#include <cstdint>

namespace geminid::trainer {

inline constexpr uint64_t kPermutationSizeMax = uint64_t{1} << 62;

// A bijection of the numbers below `size` that the key selects. It is a generalised Feistel cipher
// with cycle walking (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002,
// methods 2 and 3). Its order is statistically random, but not secret. Immutable.
class Permutation {
 public:
  // `size`: 1 to kPermutationSizeMax.
  Permutation(uint64_t size, uint64_t key);

  // `index` is below the size. Takes constant memory, and constant time on average.
  uint64_t At(uint64_t index) const;

 private:
  // A bijection of the numbers below rows_ * columns_. Fewer than columns_ of these numbers are at
  // or above size_.
  uint64_t Encrypt(uint64_t index) const;

  const uint64_t size_;
  const uint64_t key_;
  const uint64_t columns_;
  const uint64_t rows_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_PERMUTATION_H_
