// The operations of ranks while one of them dies, and afterwards.
#ifndef GEMINID_TESTS_COLLECTIVES_OPERATIONS_H_
#define GEMINID_TESTS_COLLECTIVES_OPERATIONS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// "UNAVAILABLE: rank 3 died ..."
std::string Text(const absl::Status& status);

// One call of a survivor. For most ranks it cannot end without `victim`. It takes more than one
// message.
using CollectiveCall = absl::Status (*)(Communicator& c, int victim);
// The calls by name, one of each kind of operation.
const std::map<std::string, CollectiveCall>& CollectiveCalls();

// An operation of all ranks. OK, DATA_LOSS for a wrong result, or the operation's status.
using CheckedOperation = absl::Status (*)(Communicator& c, int step);
const std::map<std::string, CheckedOperation>& CheckedOperations();

// Tests a new group: gathers its ranks in the previous group, and sums over it more than one
// message. "good: 0,1,3", or what is wrong.
std::string Use(const absl::StatusOr<Survivors>& survivors);

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_OPERATIONS_H_
