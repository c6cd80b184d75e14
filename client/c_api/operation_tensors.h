// The tensors of an open operation; an error says why it has none.
#ifndef GEMINID_CLIENT_C_API_OPERATION_TENSORS_H_
#define GEMINID_CLIENT_C_API_OPERATION_TENSORS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "geminid/zero.h"

namespace geminid::c_api {

// `number`: the caller's name for the operation.
absl::StatusOr<const std::byte*> WeightOf(const zero::Operation& operation, uint64_t number,
                                          zero::ParameterId id);
absl::StatusOr<std::byte*> GradientOf(zero::Operation& operation, uint64_t number,
                                      zero::ParameterId id);

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_OPERATION_TENSORS_H_
