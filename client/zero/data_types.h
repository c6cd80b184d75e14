// The types that weights and gradients have.
#ifndef GEMINID_CLIENT_ZERO_DATA_TYPES_H_
#define GEMINID_CLIENT_ZERO_DATA_TYPES_H_

#include "client/zero/layout.h"
#include "geminid/buffer.h"
#include "geminid/zero.h"

namespace geminid::zero {

inline DataType TypeOf(const Parameter& parameter, const Options& options) {
  return parameter.data_type.value_or(options.data_type);
}

// Of a chunk that was laid out for tensors of one of them.
inline DataType TypeOf(const ChunkShape& chunk) {
  return chunk.element_bytes == SizeOf(DataType::kFloat32) ? DataType::kFloat32
                                                           : DataType::kBFloat16;
}

inline collectives::DType ToDType(DataType type) {
  return type == DataType::kBFloat16 ? collectives::DType::kBFloat16 : collectives::DType::kFloat32;
}
inline collectives::DType DTypeOf(const ChunkShape& chunk) { return ToDType(TypeOf(chunk)); }

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_DATA_TYPES_H_
