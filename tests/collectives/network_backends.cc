#include "tests/collectives/tcp_backend.h"

namespace geminid::collectives {

std::vector<Backend> BackendsUnderTest() { return {TcpBackend()}; }

}  // namespace geminid::collectives
