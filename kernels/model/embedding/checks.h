// Argument checks of the embedding. Internal to it.
#ifndef GEMINID_KERNELS_MODEL_EMBEDDING_CHECKS_H_
#define GEMINID_KERNELS_MODEL_EMBEDDING_CHECKS_H_

#include <cstddef>

#include "kernels/model/embedding/embedding.h"
#include "kernels/runtime/simd/arguments.h"

namespace geminid::kernels {

// Element counts of the activation and of the table.
inline Status CheckEmbeddingShape(const EmbeddingShape& shape, size_t* activation, size_t* table) {
  if (shape.hidden == 0 || shape.rows > shape.vocabulary ||
      shape.first_row > shape.vocabulary - shape.rows) {
    return Status::kInvalidShape;
  }
  const Status status = CheckedProduct(shape.tokens, shape.hidden, activation);
  return status == Status::kOk ? CheckedProduct(shape.rows, shape.hidden, table) : status;
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_EMBEDDING_CHECKS_H_
