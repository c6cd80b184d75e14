// Argument checks of the embedding. Internal to it.
#ifndef GEMINID_KERNELS_MODEL_EMBEDDING_CHECKS_H_
#define GEMINID_KERNELS_MODEL_EMBEDDING_CHECKS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/model/embedding/embedding.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

// Checks the shape; counts the elements of the activation and of the table.
inline Status CheckEmbeddingShape(const EmbeddingShape& shape, size_t* activation, size_t* table) {
  if (shape.hidden == 0 || shape.rows > shape.vocabulary ||
      shape.first_row > shape.vocabulary - shape.rows) {
    return Status::kInvalidShape;
  }
  const Status status = CheckedProduct(shape.tokens, shape.hidden, activation);
  return status == Status::kOk ? CheckedProduct(shape.rows, shape.hidden, table) : status;
}

// Whether the host can read the ids; it cannot read those in device memory.
enum class Ids { kReadable, kOnDevice };

// Checks shape and ids; counts the elements of the activation and of the table.
inline Status CheckEmbedding(const EmbeddingShape& shape, const int32_t* ids, Ids where,
                             size_t* activation, size_t* table) {
  Status status = CheckEmbeddingShape(shape, activation, table);
  if (status == Status::kOk) status = CheckBuffer(Buffer::Of(ids, shape.tokens));
  if (status != Status::kOk || where == Ids::kOnDevice) return status;
  for (size_t t = 0; t < shape.tokens; ++t) {
    if (ids[t] < 0 || static_cast<size_t>(ids[t]) >= shape.vocabulary) {
      return Status::kInvalidParameter;
    }
  }
  return Status::kOk;
}

template <typename T>
Status CheckEmbeddingForward(const EmbeddingShape& shape, const int32_t* ids, Ids where,
                             const T* table, const T* position_table, size_t sequence, T* y) {
  size_t activation = 0;
  size_t table_count = 0;
  size_t positions = 0;
  Status status = CheckEmbedding(shape, ids, where, &activation, &table_count);
  if (status != Status::kOk) return status;
  if (position_table != nullptr) {
    if (sequence == 0) return Status::kInvalidShape;
    status = CheckedProduct(sequence, shape.hidden, &positions);
    if (status != Status::kOk) return status;
  }
  return CheckBuffers({Buffer::Of(ids, shape.tokens), Buffer::Of(table, table_count),
                       Buffer::Of(position_table, positions)},
                      {Buffer::Of(y, activation)});
}

// *table_count receives the number of elements of the table.
template <typename T>
Status CheckEmbeddingBackward(const EmbeddingShape& shape, const int32_t* ids, Ids where,
                              const T* dy, T* dtable, size_t* table_count) {
  size_t activation = 0;
  const Status status = CheckEmbedding(shape, ids, where, &activation, table_count);
  if (status != Status::kOk) return status;
  return CheckBuffers({Buffer::Of(ids, shape.tokens), Buffer::Of(dy, activation)},
                      {Buffer::Of(dtable, *table_count)});
}

// *positions receives the number of elements of the table of positions.
template <typename T>
Status CheckPositionBackward(size_t batch, size_t sequence, size_t hidden, const T* dy,
                             T* dpositions, size_t* positions) {
  size_t activation = 0;
  Status status = CheckedProduct(sequence, hidden, positions);
  if (status == Status::kOk) status = CheckedProduct(batch, *positions, &activation);
  if (status != Status::kOk) return status;
  return CheckBuffers({Buffer::Of(dy, activation)}, {Buffer::Of(dpositions, *positions)});
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_EMBEDDING_CHECKS_H_
