// The tensors of an open operation, or why it does not have one.
#ifndef GEMINID_CLIENT_C_API_OPERATION_TENSORS_H_
#define GEMINID_CLIENT_C_API_OPERATION_TENSORS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "geminid/zero.h"

namespace geminid::c_api {

// `number` is what callers know the operation by.
absl::StatusOr<const std::byte*> WeightOf(const zero::Operation& operation, uint64_t number,
                                          zero::ParameterId id);
absl::StatusOr<std::byte*> GradientOf(zero::Operation& operation, uint64_t number,
                                      zero::ParameterId id);

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_OPERATION_TENSORS_H_
