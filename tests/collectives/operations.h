// What ranks do while one of them dies, and afterwards.
#ifndef GEMINID_TESTS_COLLECTIVES_OPERATIONS_H_
#define GEMINID_TESTS_COLLECTIVES_OPERATIONS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// "UNAVAILABLE: rank 3 died ..."
std::string Text(const absl::Status& status);

// One call of a survivor that needs `victim` to end, for most ranks. Of longer than one message.
using CollectiveCall = absl::Status (*)(Communicator& c, int victim);
// By name, of each kind of operation.
const std::map<std::string, CollectiveCall>& CollectiveCalls();

// An operation of all ranks: OK, DATA_LOSS for a wrong result, or what it says.
using CheckedOperation = absl::Status (*)(Communicator& c, int step);
const std::map<std::string, CheckedOperation>& CheckedOperations();

// What a group is good for: its ranks in the one before, and a sum of those over it, long enough
// that it is not one message. "good: 0,1,3", or what is wrong.
std::string Use(const absl::StatusOr<Survivors>& survivors);

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_OPERATIONS_H_
