#include "tests/base/long_tests.h"
#include "tests/collectives/hierarchical/hierarchical_world.h"

namespace geminid::collectives {

std::vector<Backend> BackendsUnderTest() {
  std::vector<Backend> backends = {HostsBackend(), GrowingHostsBackend(), ShrinkingHostsBackend()};
  if (LongTests()) {
    for (Backend& backend : backends) backend.world_sizes = {4, 6};
  } else {
    backends[0].world_sizes = {4};
    backends[1].world_sizes = {6};
    backends[2].world_sizes = {4};
  }
  return backends;
}

}  // namespace geminid::collectives
