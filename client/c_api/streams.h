#ifndef GEMINID_CLIENT_C_API_STREAMS_H_
#define GEMINID_CLIENT_C_API_STREAMS_H_

#include <cstdint>

#include "geminid/stream.h"

namespace geminid::c_api {

inline StreamHandle ToStream(uint64_t stream) {
  return {reinterpret_cast<void*>(static_cast<uintptr_t>(stream))};
}

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_STREAMS_H_
