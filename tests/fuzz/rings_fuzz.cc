// Both ends of a ring whose other end writes what it likes.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "proto/shm/ring.h"
#include "tests/fuzz/fuzz_target.h"

namespace geminid::fuzz {
namespace {

constexpr uint32_t kEntries = 8;

struct Entry {
  uint64_t sequence = 0;
  uint64_t value = 0;
};

struct Shared {
  std::array<Entry, kEntries> entries{};
  std::atomic<uint64_t> written{0};
  std::atomic<uint64_t> read{0};
};

uint64_t Take(const uint8_t** data, size_t* size, size_t bytes) {
  uint64_t value = 0;
  const size_t take = std::min(bytes, *size);
  std::memcpy(&value, *data, take);
  *data += take;
  *size -= take;
  return value;
}

// A small number is likely, and any is possible.
uint64_t Number(const uint8_t** data, size_t* size) {
  const uint64_t first = Take(data, size, 1);
  return first < 250 ? first % 24 : Take(data, size, 8);
}

void ReadWhatAStrangerWrites(const uint8_t* data, size_t size) {
  Shared shared;
  shm::RingReader<Entry, kEntries> reader(shared.entries.data(), &shared.written, &shared.read);
  uint64_t taken = 0;
  while (size > 0) {
    Entry& entry = shared.entries[Take(&data, &size, 1) % kEntries];
    entry.sequence = Number(&data, &size);
    shared.written.store(Number(&data, &size));
    shared.read.store(Number(&data, &size));  // it is the reader's, who must not look at it
    for (int i = 0; i < 2; ++i) {
      Entry popped;
      const uint64_t written = shared.written.load();
      switch (reader.TryPop(&popped)) {
        case decltype(reader)::Result::kEntry:
          ++taken;
          Require(taken <= written, "nothing is taken that was not written");
          Require(shared.read.load() == taken, "the reader says what it took");
          break;
        case decltype(reader)::Result::kEmpty:
          Require(written == taken, "nothing is left behind");
          break;
        case decltype(reader)::Result::kCorrupt:
          return;  // the ring is not used any more
      }
    }
  }
}

void WriteForAStrangerWhoReads(const uint8_t* data, size_t size) {
  Shared shared;
  shm::RingWriter<Entry, kEntries> writer(shared.entries.data(), &shared.written, &shared.read);
  uint64_t pushed = 0;
  while (size > 0) {
    const uint64_t read = Number(&data, &size);
    shared.read.store(read);
    if (!writer.TryPush({.sequence = 0, .value = pushed})) continue;
    Require(read <= pushed && pushed - read < kEntries, "nothing unread is written over");
    ++pushed;
    Require(shared.written.load() == pushed, "the writer says what it wrote");
  }
}

}  // namespace
}  // namespace geminid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  if (data[0] % 2 == 0) {
    geminid::fuzz::ReadWhatAStrangerWrites(data + 1, size - 1);
  } else {
    geminid::fuzz::WriteForAStrangerWhoReads(data + 1, size - 1);
  }
  return 0;
}
