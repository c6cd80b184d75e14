#ifndef GEMINID_TESTS_COLLECTIVES_TCP_BACKEND_H_
#define GEMINID_TESTS_COLLECTIVES_TCP_BACKEND_H_

#include "tests/collectives/world.h"

namespace geminid::collectives {

Backend TcpBackend();

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_COLLECTIVES_TCP_BACKEND_H_
