// This process's table of its session's chunks: sizes, homes, and the pools that they lie in.
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

// Lookups of existing chunks are lock-free on any thread. Add and Remove run one at a time, for
// chunks that no other thread knows yet or uses any more.
class ChunkTable {
 public:
  struct Chunk {
    std::atomic<uint64_t> bytes = 0;  // 0: no such chunk
    std::byte* home = nullptr;        // null: no home
    shm::PoolId pool{};
    uint64_t pool_offset = 0;
    ChunkKind kind = ChunkKind::kNone;
  };

  ChunkTable() = default;
  ~ChunkTable();
  ChunkTable(const ChunkTable&) = delete;
  ChunkTable& operator=(const ChunkTable&) = delete;

  // Null if there is no such chunk.
  Chunk* Find(ChunkId id) const {
    const auto index = static_cast<uint32_t>(id);
    if (index >= shm::kMaxChunks) return nullptr;
    Chunk* block = blocks_[index / kBlockChunks].load(std::memory_order_acquire);
    if (block == nullptr) return nullptr;
    Chunk* chunk = &block[index % kBlockChunks];
    return chunk->bytes.load(std::memory_order_acquire) == 0 ? nullptr : chunk;
  }

  // Adds the mapping of a new pool, which stays until the pool's last chunk is removed.
  std::byte* AddPool(shm::PoolId pool, base::Mapping mapping);
  // `pool_offset` is ignored for chunks without a pool (`home` null).
  void Add(ChunkId id, ChunkKind kind, uint64_t bytes, shm::PoolId pool, uint64_t pool_offset,
           std::byte* home);
  // Returns the mappings of the pools that are empty now, for the caller to unmap.
  std::vector<base::Mapping> Remove(std::span<const ChunkId> ids);
  // Bytes of all pools, and of chunks of kind kShared. To be called like Add and Remove.
  uint64_t host_bytes() const { return host_bytes_; }

 private:
  struct Pool {
    base::Mapping mapping;
    uint64_t chunks = 0;
  };
  static constexpr uint32_t kBlockChunks = 1024;

  Chunk* Slot(ChunkId id);

  // A block is allocated when first needed, and never moved.
  std::array<std::atomic<Chunk*>, shm::kMaxChunks / kBlockChunks> blocks_ = {};
  std::map<shm::PoolId, Pool> pools_;
  uint64_t host_bytes_ = 0;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_CHUNK_TABLE_H_
