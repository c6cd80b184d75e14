#include "tests/collectives/hierarchical/hierarchical_world.h"

namespace geminid::collectives {

std::vector<Backend> BackendsUnderTest() {
  return {HostsBackend(), GrowingHostsBackend(), ShrinkingHostsBackend()};
}

std::vector<int> WorldSizesUnderTest() { return {4, 6}; }

}  // namespace geminid::collectives
