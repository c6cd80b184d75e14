// What several attacks ask the daemon for.
#ifndef GEMINID_TESTS_HOSTILE_CHUNKS_REQUEST_H_
#define GEMINID_TESTS_HOSTILE_CHUNKS_REQUEST_H_

#include <cstdint>

#include "geminid/v1/chunk.pb.h"

namespace geminid::hostile {

// So many chunks of `bytes` each, with a home in host memory.
inline v1::AllocateChunksRequest ChunksRequest(int chunks, uint64_t bytes) {
  v1::AllocateChunksRequest request;
  for (int i = 0; i < chunks; ++i) {
    v1::ChunkSpec* chunk = request.add_chunks();
    chunk->set_kind(v1::CHUNK_KIND_GENERIC);
    chunk->set_bytes(bytes);
    chunk->set_has_home(true);
  }
  return request;
}

}  // namespace geminid::hostile

#endif  // GEMINID_TESTS_HOSTILE_CHUNKS_REQUEST_H_
