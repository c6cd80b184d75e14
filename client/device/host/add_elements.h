// Sums of elements of two types: computed in fp32 and rounded once to the target's type.
#ifndef GEMINID_CLIENT_DEVICE_HOST_ADD_ELEMENTS_H_
#define GEMINID_CLIENT_DEVICE_HOST_ADD_ELEMENTS_H_

#include <cstddef>

#include "client/device/device_ops.h"
#include "geminid/buffer.h"

namespace geminid::device {

// to += from if `accumulates`, else to = from. `from` need not be aligned.
void AddElements(const Elements& from, bool accumulates, std::byte* to, collectives::DType type);

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_ADD_ELEMENTS_H_
