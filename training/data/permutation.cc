#include "training/data/permutation.h"

#include <cmath>

#include "base/counter_random.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kRounds = 8;

// The least number whose square is not below `number`.
uint64_t RootAbove(uint64_t number) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(number)));
  while (root * root < number) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= number) --root;
  return root;
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t key)
    : size_(size),
      key_(key),
      columns_(RootAbove(size)),
      rows_(size / columns_ + (size % columns_ != 0 ? 1 : 0)) {}

uint64_t Permutation::Encrypt(uint64_t index) const {
  uint64_t row = index / columns_, column = index % columns_;
  for (uint64_t round = 0; round < kRounds; round += 2) {
    column = (column + base::RandomBits(key_ + round, row) % columns_) % columns_;
    row = (row + base::RandomBits(key_ + round + 1, column) % rows_) % rows_;
  }
  return row * columns_ + column;
}

uint64_t Permutation::At(uint64_t index) const {
  do {
    index = Encrypt(index);
  } while (index >= size_);
  return index;
}

}  // namespace geminid::trainer
