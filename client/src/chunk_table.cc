#include "client/src/chunk_table.h"

#include <utility>

namespace geminid {

ChunkTable::~ChunkTable() {
  for (std::atomic<Chunk*>& block : blocks_) delete[] block.load();
}

ChunkTable::Chunk* ChunkTable::Slot(ChunkId id) {
  const auto index = static_cast<uint32_t>(id);
  std::atomic<Chunk*>& block = blocks_[index / kBlockChunks];
  if (block.load() == nullptr) block.store(new Chunk[kBlockChunks], std::memory_order_release);
  return &block.load()[index % kBlockChunks];
}

std::byte* ChunkTable::AddPool(shm::PoolId pool, base::Mapping mapping) {
  std::byte* const data = mapping.data();
  host_bytes_ += mapping.bytes();
  pools_[pool] = {std::move(mapping), 0};
  return data;
}

void ChunkTable::Add(ChunkId id, ChunkKind kind, uint64_t bytes, shm::PoolId pool,
                     uint64_t pool_offset, std::byte* home) {
  Chunk* chunk = Slot(id);
  chunk->home = home;
  chunk->pool = pool;
  chunk->pool_offset = pool_offset;
  chunk->kind = kind;
  if (home != nullptr) pools_[pool].chunks += 1;
  if (kind == ChunkKind::kShared) host_bytes_ += bytes;
  chunk->bytes.store(bytes, std::memory_order_release);
}

std::vector<base::Mapping> ChunkTable::Remove(std::span<const ChunkId> ids) {
  std::vector<base::Mapping> empty;
  for (const ChunkId id : ids) {
    Chunk* chunk = Find(id);
    if (chunk == nullptr) continue;
    if (chunk->kind == ChunkKind::kShared) host_bytes_ -= chunk->bytes.load();
    chunk->bytes.store(0, std::memory_order_release);
    if (chunk->home == nullptr) continue;
    const auto pool = pools_.find(chunk->pool);
    if (--pool->second.chunks > 0) continue;
    host_bytes_ -= pool->second.mapping.bytes();
    empty.push_back(std::move(pool->second.mapping));
    pools_.erase(pool);
  }
  return empty;
}

}  // namespace geminid
