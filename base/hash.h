#ifndef GEMINID_BASE_HASH_H_
#define GEMINID_BASE_HASH_H_

#include <bit>
#include <cstdint>
#include <string>

namespace geminid::base {

// FNV-1a, 64 bits (Fowler, Noll, Vo), over bytes or whole numbers, least significant byte first.
// The value depends neither on the machine nor on the process.
class Fnv1a {
 public:
  void Add(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) AddByte((value >> shift) & 0xff);
  }
  void AddSigned(std::int64_t value) { Add(static_cast<std::uint64_t>(value)); }
  // Adds the bits: only identical doubles hash equal.
  void AddReal(double value) { Add(std::bit_cast<std::uint64_t>(value)); }

  void AddText(const std::string& text) {
    for (const char c : text) AddByte(static_cast<unsigned char>(c));
  }

  std::uint64_t value() const { return state_; }

 private:
  void AddByte(std::uint64_t byte) { state_ = (state_ ^ byte) * kPrime; }

  static constexpr std::uint64_t kOffsetBasis = 0xcbf29ce484222325u;
  static constexpr std::uint64_t kPrime = 0x100000001b3u;
  std::uint64_t state_ = kOffsetBasis;
};

}  // namespace geminid::base

#endif  // GEMINID_BASE_HASH_H_
