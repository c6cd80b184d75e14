// Divides `total` elements into `parts` consecutive slices, one per rank. All backends use it, so
// that they move the same bytes and produce the same bits.
#ifndef GEMINID_COLLECTIVES_PARTITION_H_
#define GEMINID_COLLECTIVES_PARTITION_H_

#include <algorithm>
#include <cstddef>

namespace geminid::collectives {

// The first `total % parts` slices have one element more than the others. Ranks beyond `parts` have
// empty slices.
class Partition {
 public:
  Partition(size_t total, int parts)
      : total_(total),
        parts_(static_cast<size_t>(parts)),
        base_(total / static_cast<size_t>(parts)),
        longer_(total % static_cast<size_t>(parts)) {}

  size_t total() const { return total_; }
  size_t Begin(int part) const {
    const size_t index = std::min(static_cast<size_t>(part), parts_);
    return index * base_ + std::min(index, longer_);
  }
  size_t Count(int part) const {
    const auto index = static_cast<size_t>(part);
    return index < parts_ ? base_ + (index < longer_ ? 1 : 0) : 0;
  }
  size_t MaxCount() const { return base_ + (longer_ > 0 ? 1 : 0); }

 private:
  size_t total_;
  size_t parts_;
  size_t base_;
  size_t longer_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_PARTITION_H_
