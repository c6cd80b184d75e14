#include "tests/collectives/world.h"

namespace geminid::collectives {

std::vector<Backend> BackendsUnderTest() {
  return {LocalBackend(), ShmBackend(), ShmSmallPiecesBackend()};
}

}  // namespace geminid::collectives
