// Ranks that are threads of one process: peers read each other's buffers directly.
#ifndef GEMINID_COLLECTIVES_LOCAL_LOCAL_COMMUNICATOR_H_
#define GEMINID_COLLECTIVES_LOCAL_LOCAL_COMMUNICATOR_H_

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// One communicator per rank, each used by one thread. An operation costs two meetings on a
// condition variable and one copy of each received byte.
std::vector<std::unique_ptr<Communicator>> MakeLocalCommunicators(
    int world_size, absl::Duration timeout = kDefaultTimeout);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_LOCAL_LOCAL_COMMUNICATOR_H_
