// What this process knows of its session's chunks: sizes, homes, and the pools they lie in.
#ifndef GEMINID_CLIENT_SRC_CHUNK_TABLE_H_
#define GEMINID_CLIENT_SRC_CHUNK_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/mapping.h"
#include "geminid/types.h"
#include "proto/shm/session_layout.h"

namespace geminid {

// Readers of existing chunks are lock-free and may be any thread; Add and Remove, one at a time,
// are for chunks that no one else knows of yet, or any more.
class ChunkTable {
 public:
  struct Chunk {
    std::atomic<uint64_t> bytes = 0;  // 0: no such chunk
    std::byte* home = nullptr;        // null: none
    shm::PoolId pool{};
    uint64_t pool_offset = 0;
    ChunkKind kind = ChunkKind::kNone;
  };

  ChunkTable() = default;
  ~ChunkTable();
  ChunkTable(const ChunkTable&) = delete;
  ChunkTable& operator=(const ChunkTable&) = delete;

  // Null when there is no such chunk.
  Chunk* Find(ChunkId id) const {
    const auto index = static_cast<uint32_t>(id);
    if (index >= shm::kMaxChunks) return nullptr;
    Chunk* block = blocks_[index / kBlockChunks].load(std::memory_order_acquire);
    if (block == nullptr) return nullptr;
    Chunk* chunk = &block[index % kBlockChunks];
    return chunk->bytes.load(std::memory_order_acquire) == 0 ? nullptr : chunk;
  }

  // The mapping of a new pool, which stays until its last chunk is removed.
  std::byte* AddPool(shm::PoolId pool, base::Mapping mapping);
  // `pool_offset` is ignored without a pool (`home` null).
  void Add(ChunkId id, ChunkKind kind, uint64_t bytes, shm::PoolId pool, uint64_t pool_offset,
           std::byte* home);
  // The pools left empty are handed back, to be unmapped.
  std::vector<base::Mapping> Remove(std::span<const ChunkId> ids);
  // Of pools, and of chunks of kind kShared. As Add and Remove.
  uint64_t host_bytes() const { return host_bytes_; }

 private:
  struct Pool {
    base::Mapping mapping;
    uint64_t chunks = 0;
  };
  static constexpr uint32_t kBlockChunks = 1024;

  Chunk* Slot(ChunkId id);

  // Made when first needed, and then never moved.
  std::array<std::atomic<Chunk*>, shm::kMaxChunks / kBlockChunks> blocks_ = {};
  std::map<shm::PoolId, Pool> pools_;
  uint64_t host_bytes_ = 0;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_CHUNK_TABLE_H_
