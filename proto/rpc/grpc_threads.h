// How many threads gRPC starts by itself, and how many descriptors it opens.
#ifndef GEMINID_PROTO_RPC_GRPC_THREADS_H_
#define GEMINID_PROTO_RPC_GRPC_THREADS_H_

#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace geminid::rpc {

// The threads that gRPC 1.51 starts with its first server or channel: two timers, two executors,
// and others by the number of processors for callbacks and events. Timers that expire together take
// two more. gRPC also counts threads that the system refused: when it shuts down it waits for all
// of them, and so for ever. So whoever uses gRPC looks first whether its threads fit.
inline size_t GrpcThreads() {
  const auto processors = static_cast<size_t>(std::max(::sysconf(_SC_NPROCESSORS_CONF), 1L));
  const size_t callbacks = std::clamp<size_t>(processors / 2, 2, 16);
  const size_t events = std::clamp<size_t>(processors, 2, 32) + 1;
  return 4 + callbacks + events + 2;
}

// What gRPC opens for its first server or channel and one connection, with some to spare: sets of
// events, their wake-ups and sockets. It ends the process where it gets fewer.
inline constexpr size_t kGrpcDescriptors = 16;

}  // namespace geminid::rpc

#endif  // GEMINID_PROTO_RPC_GRPC_THREADS_H_
