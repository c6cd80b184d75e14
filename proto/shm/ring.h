// One end of a single-producer, single-consumer ring of 64-byte entries between two processes.
//
// The producer writes the entry, then its sequence number (release), then the index. The consumer
// trusts nothing: it keeps its own index, takes an entry only when its sequence number is exactly
// the expected one, and copies it out once. Not thread-safe; at most one thread per end.
#ifndef GEMINID_PROTO_SHM_RING_H_
#define GEMINID_PROTO_SHM_RING_H_

#include <atomic>
#include <cstdint>
#include <cstring>

namespace geminid::shm {

template <typename Entry, uint32_t kEntries>
class RingWriter {
  static_assert((kEntries & (kEntries - 1)) == 0, "the index is masked");

 public:
  RingWriter(Entry* entries, std::atomic<uint64_t>* written, const std::atomic<uint64_t>* read)
      : entries_(entries),
        written_(written),
        read_(read),
        next_(written->load(std::memory_order_relaxed)) {}

  // False if the ring is full, or if the reader's index is impossible.
  bool TryPush(const Entry& entry) {
    const uint64_t read = read_->load(std::memory_order_acquire);
    if (read > next_ || next_ - read >= kEntries) return false;
    Entry* slot = &entries_[next_ & (kEntries - 1)];
    constexpr size_t kHead = sizeof(slot->sequence);
    std::memcpy(reinterpret_cast<char*>(slot) + kHead,
                reinterpret_cast<const char*>(&entry) + kHead, sizeof(Entry) - kHead);
    std::atomic_ref<uint64_t>(slot->sequence).store(next_ + 1, std::memory_order_release);
    ++next_;
    // Sequentially consistent, because the caller next looks at the reader's `asleep` word.
    written_->store(next_, std::memory_order_seq_cst);
    return true;
  }

  // Whether `is_it` is true for one of the last kEntries entries written, whether read or not.
  template <typename IsIt>
  bool HasWritten(IsIt is_it) const {
    for (uint64_t i = next_ > kEntries ? next_ - kEntries : 0; i < next_; ++i) {
      if (is_it(entries_[i & (kEntries - 1)])) return true;
    }
    return false;
  }

 private:
  Entry* entries_;
  std::atomic<uint64_t>* written_;
  const std::atomic<uint64_t>* read_;
  uint64_t next_;
};

template <typename Entry, uint32_t kEntries>
class RingReader {
  static_assert((kEntries & (kEntries - 1)) == 0, "the index is masked");

 public:
  enum class Result { kEntry, kEmpty, kCorrupt };

  RingReader(const Entry* entries, const std::atomic<uint64_t>* written,
             std::atomic<uint64_t>* read)
      : entries_(entries),
        written_(written),
        read_(read),
        next_(read->load(std::memory_order_relaxed)) {}

  // Copies the next entry to *entry. kCorrupt: the writer's words contradict each other; the ring
  // must not be used any more.
  Result TryPop(Entry* entry) {
    const Result result = TryPeek(entry);
    if (result == Result::kEntry) Advance();
    return result;
  }

  // Like TryPop, but the entry stays in the ring until Advance(). If the reader dies before that,
  // the next reader finds this entry first.
  Result TryPeek(Entry* entry) {
    const uint64_t written = written_->load(std::memory_order_seq_cst);
    if (written == next_) return Result::kEmpty;
    if (written < next_ || written - next_ > kEntries) return Result::kCorrupt;
    const Entry* slot = &entries_[next_ & (kEntries - 1)];
    const uint64_t sequence = std::atomic_ref<uint64_t>(const_cast<uint64_t&>(slot->sequence))
                                  .load(std::memory_order_acquire);
    if (sequence != next_ + 1) return Result::kCorrupt;
    std::memcpy(entry, slot, sizeof(Entry));
    return Result::kEntry;
  }
  void Advance() {
    ++next_;
    read_->store(next_, std::memory_order_release);
  }

  bool Empty() const { return written_->load(std::memory_order_seq_cst) == next_; }

 private:
  const Entry* entries_;
  const std::atomic<uint64_t>* written_;
  std::atomic<uint64_t>* read_;
  uint64_t next_;
};

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_RING_H_
