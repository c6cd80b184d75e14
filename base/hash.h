#ifndef GEMINID_BASE_HASH_H_
#define GEMINID_BASE_HASH_H_

#include <bit>
#include <cstdint>

namespace geminid::base {

// FNV-1a, 64 bits (Fowler, Noll, Vo), fed with whole numbers, least significant byte first, so that
// the value does not depend on the machine.
class Fnv1a {
 public:
  void Add(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      state_ = (state_ ^ ((value >> shift) & 0xff)) * kPrime;
    }
  }
  void AddSigned(std::int64_t value) { Add(static_cast<std::uint64_t>(value)); }
  // By its bits: only identical doubles hash equal.
  void AddReal(double value) { Add(std::bit_cast<std::uint64_t>(value)); }

  std::uint64_t value() const { return state_; }

 private:
  static constexpr std::uint64_t kOffsetBasis = 0xcbf29ce484222325u;
  static constexpr std::uint64_t kPrime = 0x100000001b3u;
  std::uint64_t state_ = kOffsetBasis;
};

}  // namespace geminid::base

#endif  // GEMINID_BASE_HASH_H_
