// Which bytes of a chunk have been written back so far, piece by piece and in any order.
#ifndef GEMINID_DAEMON_CORE_CHUNKS_COVERED_RANGES_H_
#define GEMINID_DAEMON_CORE_CHUNKS_COVERED_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <map>

namespace geminid::core {

// A bounded set of byte ranges, joined where they touch. Not thread-safe; logarithmic.
class CoveredRanges {
 public:
  // Pieces arrive nearly in order, so a few ranges suffice. At this many, Add ignores a range that
  // touches no other. At worst the chunk is then written back again.
  static constexpr size_t kMaxRanges = 1024;

  void Add(uint64_t begin, uint64_t end);
  bool Covers(uint64_t begin, uint64_t end) const;
  void Clear() { ranges_.clear(); }
  size_t ranges() const { return ranges_.size(); }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin to end
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_CHUNKS_COVERED_RANGES_H_
